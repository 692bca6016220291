"""A page that stands alone: one file with its style inside, which asks for nothing and runs no script.

`duly plan`, `duly verify` and `duly simulate` write it with `--html`, from the document that they print with `--json`.
"""

import base64
import hashlib
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, Final

from markupsafe import Markup

from duly.core.moments import Instant
from duly.web.display import ASSETS, Display, release, rendered

_STYLE: Final = ASSETS["duly.css"].decode()
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; base-uri 'none'; form-action 'none'"
)
"""Nothing but the style that is in the file, by its hash."""


def report(template: str, title: str, zone: tzinfo, at: Instant, values: Mapping[str, Any]) -> str:
    """The text of a file."""
    return rendered(
        template,
        {
            "layout": "report.html",
            "d": Display("", zone, at, linked=False),
            "title": title,
            "policy": POLICY,
            "style": Markup(_STYLE),  # a file of the package
            "version": release(),
            **values,
        },
    )
