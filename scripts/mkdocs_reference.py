"""Hook of mkdocs.yml: adds pages that are generated from other sources to the site of docs/.

- reference/config.md, plugins.md, script.md, commands.md: the output of `nrl describe` and `nrl help`;
- reference/headers/NAME.md: the public headers, nrl/NAME.h;
- project/*.md: CHANGELOG, CONTRIBUTING and SECURITY of the tree's root;
- the navigation of the pages on plugins, one page per kind.

A link of a page to such a file becomes a link to its page; a link to any other file of the tree becomes its path.
A link to a missing file is not changed, so mkdocs warns about it. NRL is the path of the program.
"""

import json
import os
import re
import subprocess
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
HEADERS = sorted([*ROOT.glob("core/include/nrl/*.h"), *ROOT.glob("lib/*/include/nrl/*.h")], key=lambda header: header.name)
# Files of the tree that are pages of the site.
PAGES = {ROOT / name: f"project/{name}" for name in PROJECT}
PAGES |= {header: f"reference/headers/{header.stem}.md" for header in HEADERS}


def nrl(*arguments):
    program = os.environ.get("NRL", ROOT / "build/release/bin/nrl")
    alone = {**os.environ, "PATH": ""}  # a program nrl-VERB of this machine is none of nrl's
    return subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE, text=True, env=alone).stdout


def cell(text):
    """Text for a cell of a table, with markup escaped."""
    text = str(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return re.sub(r"([*_\[\]])", r"\\\1", text)


def code(text):
    return f"`{text}`".replace("|", "\\|") if str(text) else ""


def limits(option):
    if option.get("choices"):
        return ", ".join(code(c) for c in option["choices"].split("|"))
    bounds = [option.get("min"), option.get("max")]
    if bounds == [None, None]:
        return ""
    return f"{'' if bounds[0] is None else bounds[0]} to {'' if bounds[1] is None else bounds[1]}"


def options_table(section):
    lines = ["| option | type | default | what |", "| --- | --- | --- | --- |"]
    for option in section["options"]:
        default = "required" if option["required"] else code(option["default"]) or "unset"
        extra = limits(option)
        what = cell(option["help"]) + (f" ({extra})" if extra else "")
        lines.append(f"| {code(option['name'])} | {option['type']} | {default} | {what} |")
    return lines if section["options"] else ["No options."]


def section_page(title, intro, sections, heading):
    lines = [f"# {title}", "", intro, ""]
    for section in sections:
        lines += [f"## {heading(section)}", ""]
        if section["name"]:
            lines += [cell(section["summary"][:1].upper() + section["summary"][1:]) + ".", ""]
        lines += options_table(section) + [""]
    return "\n".join(lines)


def reference():
    """Maps the path of every generated page in the site to its text."""
    sections = json.loads(nrl("describe", "--json"))
    plugins = [s for s in sections if "/" in s["name"]]
    config = [s for s in sections if "/" not in s["name"]]
    pages = {
        "reference/config.md": section_page(
            "Config", "Every key of a config, as `nrl describe` prints it. On a command line the option `lr` of the "
            "section `optimizer` is `optimizer.lr=1e-5`.", config, lambda s: s["name"] or cell(s["summary"]).capitalize()),
        "reference/plugins.md": section_page(
            "Plugins", "The plugins that come with nrl, and the options of each. In a config a plugin is a word "
            "(`optimizer: adamw`) or a map (`optimizer: {name: adamw, weight_decay: 0.1}`).",
            plugins, lambda s: s["name"]),
        "reference/script.md": "# Lua functions\n\nWhat `nrl describe lua` prints.\n\n```text\n"
            + nrl("describe", "lua") + "```\n",
    }
    # Those with an example, and those in the line "and nrl cluster, migrate, ...", as in cmake/man.sh.
    shown = re.findall(r"^  nrl ([a-z][a-z-]*)|^  and nrl (.*)", nrl("help"), re.M)
    verbs = list(dict.fromkeys(verb for one, others in shown for verb in [one, *others.split(", ")] if verb))
    lines = ["# Commands", "", "What `nrl help` prints, and then `nrl help VERB` of each verb.", "",
             "```text", nrl("help").rstrip(), "```", ""]
    for verb in verbs:
        lines += [f"## nrl {verb}", "", "```text", nrl("help", verb).rstrip(), "```", ""]
    pages["reference/commands.md"] = "\n".join(lines)
    for header in HEADERS:
        pages[PAGES[header]] = f"# nrl/{header.name}\n\n```c\n{header.read_text()}```\n"
    for name in PROJECT:
        pages[f"project/{name}"] = (ROOT / name).read_text()
    return pages


def on_config(config):
    guides = [{"Overview": "plugins/index.md"}]
    guides += [f"plugins/{page.name}" for page in sorted((ROOT / "docs/plugins").glob("*.md")) if page.stem != "index"]
    guides += [{"Embedding": "embedding.md"}] if (ROOT / "docs/embedding.md").exists() else []
    next(entry for entry in config.nav if "Writing plugins" in entry)["Writing plugins"] = guides
    headers = [{f"nrl/{header.name}": PAGES[header]} for header in HEADERS]
    config.nav.append({"Reference": [
        {"Config": "reference/config.md"}, {"Plugins": "reference/plugins.md"},
        {"Commands": "reference/commands.md"}, {"Lua functions": "reference/script.md"}]})
    config.nav.append({"Headers": headers})
    return config


def on_files(files, config):
    for path, text in reference().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    own = page.file.src_uri
    home = ROOT / Path(own).name if own.startswith("project/") else ROOT / "docs" / own

    def target(match):
        text, path, anchor = match.group(1), match.group(2), match.group(3) or ""
        file = Path(os.path.normpath(home.parent / path))
        if file in PAGES or (own.startswith("project/") and file.is_relative_to(ROOT / "docs")):
            uri = PAGES.get(file) or file.relative_to(ROOT / "docs").as_posix()
            return f"[{text}]({os.path.relpath(uri, os.path.dirname(own) or '.')}{anchor})"
        if file.is_relative_to(ROOT / "docs") or not file.exists():
            return match.group(0)
        name = file.relative_to(ROOT).as_posix()
        return text if name in text else f"{text} (`{name}`)"

    fence = re.split(r"(^```.*?^```[ \t]*$)", markdown, flags=re.M | re.S)
    link = re.compile(r"\[([^\]]+)\]\(((?!https?:|mailto:|#)[^)#\s]+)(#[^)]*)?\)")
    return "".join(part if part.startswith("```") else link.sub(target, part) for part in fence)
