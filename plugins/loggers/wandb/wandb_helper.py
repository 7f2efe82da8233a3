"""The helper of the logger wandb: hands records to the official package.

Standard input is a socket. Each line from nrl is a JSON object, and each is answered by a line, "ok" or "error TEXT". The
first object has the settings of the run, the others are records. The end of input finishes the run. Everything that the
package prints goes to standard error, a log file.
"""
import sys

sys.path[:] = [folder for folder in sys.path if folder]  # nothing is imported from the current directory
import json, os, socket

link = socket.socket(fileno=os.dup(0))  # not inherited by processes of the package
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)
lines = link.makefile("r", encoding="utf-8", errors="replace")


def answer(text):
    link.sendall((text.replace("\n", " ") + "\n").encode("utf-8", "replace"))


def read_id(kept, continues):
    """The id of the run to continue, or None. A new run removes the id that an earlier run has left in the same folder, so
    that a later start of this helper finds only an id of its own run."""
    if not os.path.exists(kept):
        return None
    if not continues:
        os.remove(kept)
        return None
    with open(kept) as f:
        return f.read().strip() or None


def begin(s):
    folder = os.path.join(s["out"], "wandb")
    os.makedirs(folder, exist_ok=True)
    kept = os.path.join(folder, "nrl-run-id")
    run_id = read_id(kept, s["continues"])
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_CONSOLE", "off")
    import wandb

    options = {"project": s["project"], "name": s["name"], "dir": s["out"], "config": s["config"], "mode": s["mode"]}
    if s["entity"]:
        options["entity"] = s["entity"]
    if s["tags"]:
        options["tags"] = [t.strip() for t in s["tags"].split(",") if t.strip()]
    if run_id:
        options.update(id=run_id, resume="allow")
    run = wandb.init(**options)
    with open(kept, "w") as f:
        f.write(run.id + "\n")
    run.define_metric("train/global_step")
    run.define_metric("*", step_metric="train/global_step", step_sync=True)
    return run


def number(value):
    return float(value) if isinstance(value, str) else value


def main():
    run = begin(json.loads(lines.readline()))
    ended = False
    answer("ok")
    for line in lines:
        record = json.loads(line)
        values = {name: number(value) for name, value in record["values"].items()}
        values["train/global_step"] = record["step"]
        if record.get("samples"):
            import wandb

            columns = ["index", "prompt", "text", "answer", "score"]
            values["eval/samples"] = wandb.Table(columns=columns, data=[[s.get(c) for c in columns] for s in record["samples"]])
        run.log(values)
        if record["ends"]:
            run.summary["finished"] = ended = True
        answer("ok")
    run.finish(exit_code=0 if ended else 1)  # the run shows as failed if it was stopped or diverged
    answer("ok")


try:
    main()
except BaseException as error:
    try:
        answer("error %s: %s" % (type(error).__name__, error))
    except OSError:
        pass
    raise
