"""Build the site: `python -m docs.site`, or `make docs`. Nothing is fetched."""

import argparse
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from docs.site import check, llms
from docs.site.assemble import ROOT, Assembly


def main() -> int:
    """Assemble, build, check; 0 if nothing is wrong with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "build", help="the folder for the site")
    into = parser.parse_args().into
    source, site = into / "site-source", into / "site"
    assembly = Assembly(source)
    assembly.write()
    for name in assembly.texts_of_pictures:
        sys.stdout.write(f"{name}: a picture is shown as text; `make pictures` draws it\n")
    options = ["-W", "--keep-going", "--fail-on-warning", "-q", "-n", "-E", "-j", "2"]
    code: int = sphinx(["-b", "html", "-c", str(ROOT / "docs/site"), *options, str(source), str(site)])
    if code:
        return code
    llms.write(site)
    found = [*check.faults(site), *check.citation_faults()]
    sys.stdout.writelines(f"{fault}\n" for fault in found)
    if not found:
        sys.stdout.write(f"{site / 'index.html'}: {sum(1 for _ in site.rglob('*.html'))} pages\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
