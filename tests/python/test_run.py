"""Runs from Python: configs, records, hooks, several at once, errors, Ctrl-C; without numpy."""
import json
import os
import signal
import subprocess
import sys
import threading

import nrl
from common import Case, configs, main


def records(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        return [json.loads(line) for line in f]


class Runs(Case):
    def test_a_dict_a_file_and_overrides_give_the_same_run(self):
        with open(self.path("run.yaml"), "w") as f:
            json.dump(self.config("yaml", train={"steps": 9, "global_batch": 8}), f)  # JSON is YAML
        os.environ["NRL_TEST_OUT"] = self.path("dict")
        with nrl.open(self.config(out="x"), "out=${env:NRL_TEST_OUT}") as run:
            events = list(run)
            self.assertEqual([e.kind for e in events], ["step", "step", "step", "save"])
            self.assertEqual((run.steps_done, run.total_steps, run.out), (3, 3, self.path("dict")))
            self.assertEqual(run.config["optimizer"]["name"], "adamw")
        with nrl.open(self.path("run.yaml"), "train.steps=2", train={"steps": 3}, out=self.path("yaml")) as run:
            self.assertEqual(run.total_steps, 2)  # what is last wins
        with nrl.open(self.path("run.yaml"), train={"steps": 3}, out=self.path("again")) as run:
            run.train()
        losses = [e.loss for e in events if e.kind == "step"]
        self.assertEqual(losses, [r["loss"] for r in records(self.path("dict")) if "loss" in r])
        self.assertEqual(losses, [r["loss"] for r in records(self.path("again")) if "loss" in r])
        self.assertEqual(events[0].values["loss"], losses[0])
        self.assertEqual(events[-1].path, os.path.join(self.path("dict"), "checkpoints", "step-00000003"))

    def test_keys_are_merged_whatever_they_are_named_and_say(self):
        base = self.config("merged", optimizer={"lr": 3e-3, "lr_ratios": {"*.mlp.*": 0.5}}, schedule="constant")

        def resolved(**keys):
            with nrl.open({**base, **keys.pop("config", {})}, check_only=True, **keys) as run:
                return run.config
        for name in ("\U0001f600 caf\u00e9", "\x7f\x85\u2028\ufeff", "a\\ud83d\\ude00\tb"):
            self.assertEqual(resolved(name=name)["name"], name)
        self.assertEqual(resolved(optimizer={}, schedule={})["optimizer"]["lr"], 3e-3)
        self.assertEqual(resolved(optimizer={"lr_ratios": {}})["optimizer"]["lr_ratios"], {"*.mlp.*": 0.5})
        self.assertEqual(resolved(optimizer={"lr_ratios": {"*.self_attn.*": 2, "*": 1}})["optimizer"]["lr_ratios"],
                         {"*.mlp.*": 0.5, "*.self_attn.*": 2, "*": 1})
        word = resolved(config={"optimizer": "adamw"}, optimizer={"lr_ratios": {"*.mlp.*": 2, "*.self_attn.*": 3}, "lr": 1e-3})
        self.assertEqual((word["optimizer"]["name"], word["optimizer"]["lr"]), ("adamw", 1e-3))
        self.assertEqual(word["optimizer"]["lr_ratios"], {"*.mlp.*": 2, "*.self_attn.*": 3})
        self.assertEqual(resolved(**{"optimizer.lr": 2e-3})["optimizer"]["lr"], 2e-3)
        with self.assertRaises(nrl.ConfigError) as caught:
            resolved(train={"st.eps": {"a=b": 3}}, model={"": 1})
        self.assertIn("train.st.eps: unknown key", str(caught.exception))

    def test_the_plan_is_a_dict_and_lines_of_the_log(self):
        with self.assertLogs("nrl", "INFO") as log, nrl.open(self.config("plan"), quiet=False, check_only=True) as run:
            self.assertEqual((run.plan["train"]["steps"], run.plan["name"]), (run.total_steps, "plan"))
            self.assertEqual(run.plan["model"]["type"], "llama")
        self.assertIn("train      3 steps of", "\n".join(log.output))

    def test_several_runs_take_turns(self):
        with nrl.open(self.config("one")) as one, nrl.open(self.config("two", train={"steps": 3, "global_batch": 8, "seed": 7})) as two:
            pairs = [(a.loss, b.loss) for a, b in zip(one.steps(), two.steps())]
            self.assertEqual(len(pairs), 3)
            self.assertNotEqual(*pairs[0])
        with nrl.open(self.config("three")) as run:
            self.assertEqual([e.loss for e in run.steps()], [a for a, _ in pairs])

    def test_hooks_steer_and_state_is_kept(self):
        seen = []
        with nrl.open(self.config()) as run:
            @run.on("step")
            def after(event):
                seen.append((event.step, run.evaluate(configs("data/chat_eval.jsonl"))["eval_loss"]))
                run.state = {"seen": len(seen)}
                run.set_lr(1e-3)
                for wrong in (-1, float("nan"), float("inf")):
                    self.assertRaises(ValueError, run.set_lr, wrong)
                if event.step == 2:
                    run.stop("that is enough")
            run.train()
            self.assertEqual([step for step, _ in seen], [1, 2])
            self.assertGreater(seen[0][1], 0)
        with nrl.open(self.config(), "resume=auto") as run:
            self.assertEqual((run.steps_done, run.state), (2, {"seen": 2}))
            self.assertEqual(run.step().lr, 1e-3)

    def test_errors_are_exceptions_with_nrls_text(self):
        with self.assertRaises(nrl.ConfigError) as caught:
            nrl.open(self.config(), "optimizer.lrr=3", "train.stepz=1")
        self.assertIn("optimizer.lrr: unknown key; did you mean 'lr'?", str(caught.exception))
        self.assertIn("train.stepz: unknown key", str(caught.exception))
        with self.assertRaises(nrl.ConfigError):
            nrl.open(self.path("nowhere.yaml"))
        with open(self.path("rows.jsonl"), "w") as f:
            f.write('{"messages": 3}\n')
        with self.assertRaises(nrl.DataError) as caught:
            nrl.open(self.config(), f"data.train={self.path('rows.jsonl')}")
        self.assertIn("rows.jsonl:1", str(caught.exception))
        self.assertIsInstance(caught.exception, ValueError)
        self.assertTrue(issubclass(nrl.DiskFullError, nrl.FileError) and issubclass(nrl.FileError, OSError))
        run = nrl.open(self.config())
        run.close()
        run.close()
        for call in (run.step, run.save, lambda: run.sample("a")):
            self.assertRaises(ValueError, call)

    def test_an_exception_of_a_hook_ends_the_run_and_is_raised(self):
        run = nrl.open(self.config())
        mine = KeyError("mine")

        def fail(event):
            raise mine
        run.on("step", fail)
        with self.assertRaises(KeyError) as caught:
            run.train()
        self.assertIs(caught.exception, mine)
        run.close()
        self.assertRaises(ValueError, run.on, "stepp")

    def test_an_exception_of_the_last_hook_is_raised_too(self):
        run = nrl.open(self.config(), quiet=False, loggers=["jsonl"])
        mine = KeyError("mine")

        def fail(event):
            raise mine
        run.on("end", fail)
        with self.assertRaises(KeyError) as caught:
            run.train()
        self.assertIs(caught.exception, mine)
        self.assertEqual(nrl.Checkpoint(run.out).step, 3)
        run.save()  # it was raised once
        run.close()

    def test_a_run_cannot_be_closed_during_a_call_of_it(self):
        raised = []

        def close():
            try:
                run.close()
            except nrl.ConfigError as error:
                raised.append(str(error))

        def close_in_a_thread(event):
            thread = threading.Thread(target=close)
            thread.start()
            thread.join()

        @nrl.loss
        def closes(b):
            close()
            return -(b.logps * b.weights).sum()
        with nrl.open(self.config(algorithm=closes)) as run:
            run.on("step", lambda event: close())
            run.on("save", close_in_a_thread)
            run.train()
            run.sample("a", max_tokens=1, on_token=lambda *token: close())
            self.assertEqual(run.steps_done, 3)
        mine, thread = "cannot call run.close from a hook or a loss", "cannot call run.close: another thread is in a call of the run"
        self.assertEqual(set(raised), {mine, thread})
        self.assertEqual((raised.count(thread), raised[-2:]), (1, [thread, mine]))
        self.assertRaises(ValueError, run.step)

    def test_a_run_that_is_dropped_in_a_call_is_closed_after_it(self):
        run = nrl.open(self.config())
        run.on("step", lambda event: run.__del__())
        self.assertEqual(run.step().step, 1)
        self.assertRaises(ValueError, run.step)

    def test_a_run_belongs_to_its_thread(self):
        raised = []
        with nrl.open(self.config()) as run:
            def use():
                try:
                    run.step()
                except RuntimeError as error:
                    raised.append(error)
            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
            self.assertEqual(len(raised), 1)
            run.step()

    def test_nothing_is_printed_unless_asked(self):
        code = "import json, sys, nrl\nnrl.open(json.loads(sys.argv[1]), quiet=sys.argv[2] == 'quiet').train()"
        arguments = [sys.executable, "-c", code, json.dumps(self.config())]
        done = subprocess.run([*arguments, "quiet"], check=True, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        done = subprocess.run([*arguments[:-1], json.dumps(self.config("loud")), "loud"], check=True, capture_output=True, text=True)
        self.assertIn("loss", done.stdout)

    def test_signals_leave_the_numbers_alone(self):
        code = """
import json, signal, sys, nrl
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
losses = [e.loss for e in nrl.open(json.loads(sys.argv[1])) if e.kind == "step"]
signal.setitimer(signal.ITIMER_REAL, 0)
print(losses)
"""
        config = self.config("signals", train={"steps": 50, "global_batch": 8})
        done = subprocess.run([sys.executable, "-c", code, json.dumps(config)], check=True, capture_output=True, text=True)
        with nrl.open(self.config("quiet", train={"steps": 50, "global_batch": 8})) as run:
            self.assertEqual([e.loss for e in run if e.kind == "step"], json.loads(done.stdout))

    def test_ctrl_c_saves_and_is_raised(self):
        code = """
import json, os, signal, sys, nrl
run = nrl.open(json.loads(sys.argv[1]))
def interrupt(event):
    if event.step == 2:
        signal.raise_signal(signal.SIGINT)
        if sys.argv[2] == "call":
            run.save()
            print("saved", flush=True)
if sys.argv[2] != "signal":
    run.on("step", interrupt)
else:
    print("open", flush=True)
try:
    run.train()
except KeyboardInterrupt:
    print("interrupted", run.steps_done, nrl.Checkpoint(run.out).step, flush=True)
"""
        long = self.config(train={"steps": 100000, "global_batch": 8}, checkpoint={"every": 100000})
        for where in ("hook", "call"):  # in a hook, and in a hook that calls the run
            done = subprocess.run([sys.executable, "-c", code, json.dumps({**long, "out": self.path(where)}), where], check=True,
                                  capture_output=True, text=True)
            self.assertEqual(done.stdout, "saved\n" * (where == "call") + "interrupted 2 2\n")
        child = subprocess.Popen([sys.executable, "-c", code, json.dumps(long), "signal"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "open\n")
        records_file = os.path.join(self.path("run"), "metrics.jsonl")  # empty until run.train(), which handles the signal
        while not os.path.exists(records_file) or not os.path.getsize(records_file):
            pass
        child.send_signal(signal.SIGINT)
        word, steps, saved = child.stdout.readline().split()
        self.assertEqual((word, steps), ("interrupted", saved))
        self.assertEqual(child.wait(), 0)
        child.stdout.close()


if __name__ == "__main__":
    main()
