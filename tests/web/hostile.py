"""Names of tasks that try to break out of a page, a header, a query, a pattern or a line."""

NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "'; DROP TABLE tasks; --",
    "{{7*7}}${7*7}",
    "a\nb\r\nSet-Cookie: x=1",
    "\u202egnp.exe",
    "e\u0301\u200b",
    "%_\\",
    "../../etc/passwd",
    "\U0001f98a" * 40,
    "x" * 5000,
    " ",
    "javascript:alert(3)",
    "</title><script>alert(4)</script>",
    "&lt;b&gt;",
    "\x1b[31mred",
    "a?b#c&d=e+f",
    "0~after",
    "</svg><style>*{display:none}</style>",
)
MARKUP = ("<script>alert", "<img src=x", "<style>*", "\x1b", "\u202e", "\u200b")
"""Text that no page may contain, whatever the names are."""
