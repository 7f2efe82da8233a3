"""jinja.py CASES [--write]: small templates rendered as transformers renders chat templates, compared
with the recorded texts that the unit test of the interpreter holds itself to. --write records them."""
import json
import sys
from datetime import datetime

from transformers.utils.chat_template_utils import _compile_jinja_template


def render(source, variables):
    template = _compile_jinja_template(source)
    day = datetime(2024, 7, 26, 12)
    template.environment.globals["strftime_now"] = lambda form: day.strftime(form)
    return template.render(**variables)


def outcome(source, variables):
    try:
        return {"template": source, "expected": render(source, variables)}
    except Exception as problem:  # whatever the template raises
        return {"template": source, "error": type(problem).__name__ + ": " + str(problem)}


def main():
    path = sys.argv[1]
    with open(path, encoding="utf-8") as f:
        cases = json.load(f)
    made = [outcome(case["template"], cases["variables"]) for case in cases["cases"]]
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as f:
            rows = ",\n".join("    " + json.dumps(case, ensure_ascii=False) for case in made)
            f.write('{"variables": ' + json.dumps(cases["variables"], ensure_ascii=False) + ',\n "cases": [\n' + rows + "\n]}\n")
        return 0
    bad = [(new, old) for new, old in zip(made, cases["cases"]) if new != old]
    for new, old in bad:
        print("recorded", old, "but transformers gives", new)
    print(f"{len(made) - len(bad)} of {len(made)} cases agree with transformers")
    return 1 if bad else 0


sys.exit(main())
