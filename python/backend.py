"""Builds the wheel: the package and the library that `make library` has built. Needs nothing but Python's own library.

    python3 python/backend.py FOLDER     or     pip wheel --no-deps python/

GVMM_WHEEL_LIBRARY names another libgvmm.so than target/release's.
"""

import base64
import hashlib
import os
import re
import sys
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def _version() -> str:
    return re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M).group(1)


def _library() -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    library = Path(os.environ.get("GVMM_WHEEL_LIBRARY", target / "release" / "libgvmm.so"))
    if not library.exists():
        raise FileNotFoundError(f"{library} is not there: run `make library` first")
    return library


def _metadata() -> str:
    return (
        f"Metadata-Version: 2.1\nName: gvmm\nVersion: {_version()}\nRequires-Python: >=3.9\n"
        "Summary: A PyTorch allocator whose segments grow, shrink and lend pages\nLicense: MIT OR Apache-2.0\n"
    )


def _tag() -> str:
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook of PEP 517: gives the wheel's file name."""
    info = f"gvmm-{_version()}.dist-info"
    package = sorted(path for path in (HERE / "gvmm").iterdir() if path.suffix in (".py", ".cc", ".typed"))
    files = {f"gvmm/{path.name}": path.read_bytes() for path in package}
    files["gvmm/libgvmm.so.0"] = _library().read_bytes()
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        files[f"{info}/licenses/{name}"] = (ROOT / name).read_bytes()
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: gvmm\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode()
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = f"gvmm-{_version()}-{_tag()}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target" / "wheel")
    folder.mkdir(parents=True, exist_ok=True)
    print(folder / build_wheel(folder))
