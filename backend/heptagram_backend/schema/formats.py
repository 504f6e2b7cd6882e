"""String formats as patterns. Each generates only values that the format surely admits, often not all of them.

Dates are real dates (no 31st of June), times have no leap second, and addresses keep to plain ASCII. Generated text
therefore validates with a checker that asserts formats as well as with one that does not.
"""

from __future__ import annotations

from typing import Final

_YEAR_MONTH_DAY = (
    r"(?:[1-9]\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))"
    r"|(?:[1-9]\d(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29)"
)
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_LABEL = r"[A-Za-z0-9]{1,16}(?:-[A-Za-z0-9]{1,15}){0,2}"  # no `--`: xn--... is a code of its own
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,2}}"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_PCHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_TAIL = rf"(?:/{_PCHAR}*)*(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_AUTHORITY = r"//[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,4})?"
_URI = rf"(?:[A-Za-z][A-Za-z0-9+.-]*:{_AUTHORITY}{_TAIL}|(?:mailto|urn|data|tel|news):{_PCHAR}+{_TAIL})"

FORMATS: Final[dict[str, str]] = {
    "date": f"^{_YEAR_MONTH_DAY}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_YEAR_MONTH_DAY}T{_TIME}$",
    "duration": r"^P(?:\d{1,9}W|\d{1,9}D(?:T\d{1,9}H)?|T(?:\d{1,9}H(?:\d{1,9}M)?|\d{1,9}M(?:\d{1,9}S)?|\d{1,9}S))$",
    "email": rf"^[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*@{_LABEL}(?:\.{_LABEL}){{1,2}}$",
    "hostname": f"^{_HOST}$",
    "ipv4": rf"^(?:{_OCTET}\.){{3}}{_OCTET}$",
    "ipv6": r"^(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,3}:[0-9a-f]{1,4}|::[0-9a-f]{1,4}|::)$",
    "uuid": r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    "uri": f"^{_URI}$",
    "uri-reference": f"^(?:{_URI}|{_TAIL.replace('*)*', '+)+', 1)})$",
    "json-pointer": r"^(?:/(?:[^/~]|~[01])*)*$",
}
# The international forms admit all that the plain ones do, and a template may have no variables.
_PLAIN: Final = (
    ("idn-email", "email"),
    ("idn-hostname", "hostname"),
    ("iri", "uri"),
    ("iri-reference", "uri-reference"),
    ("uri-template", "uri-reference"),
)
FORMATS.update({wider: FORMATS[plain] for wider, plain in _PLAIN})
