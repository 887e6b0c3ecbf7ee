"""Where the loader binds the virtual-memory calls of JAX's ROCm plugin. See jax_rocm_check.sh."""

import glob
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

PACKAGE = "jax-rocm7-pjrt"
INSIDE = "jax_plugins/xla_rocm7/xla_rocm_plugin.so"
SYSTEM = ("libc.", "libm.", "libdl.", "librt.", "libpthread.", "libstdc++.", "libgcc_s.", "ld-linux")


def plugin(given, folder):
    """The plugin's path; None where none is to be had."""
    if given.endswith(".so"):
        return given
    if not given:
        found = glob.glob(os.path.join(sysconfig.get_path("purelib"), "jax_plugins/xla_rocm*/xla_rocm_plugin.so"))
        if found:
            return found[0]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", PACKAGE, "-d", folder]
        if subprocess.run(command, capture_output=True).returncode:
            return None
        given = glob.glob(os.path.join(folder, "*.whl"))[0]
    with zipfile.ZipFile(given) as wheel:
        return wheel.extract(INSIDE, folder)


def readelf(option, path):
    return subprocess.run(["readelf", option, "-W", path], capture_output=True, text=True, check=True).stdout


def wanted(path):
    """What the plugin asks for: libraries, and for each (name, version, kind); without a version under None."""
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", path))
    files, current = {}, None
    for line in readelf("-V", path).split("Version needs section")[-1].splitlines():
        if file := re.search(r"File: (\S+)", line):
            current = file[1]
        elif name := re.search(r"Name: (\S+).*Version: (\d+)", line):
            files[int(name[2])] = (current, name[1])
    symbols = {}
    for line in readelf("--dyn-syms", path).splitlines():
        words = line.split()
        if len(words) < 8 or words[6] != "UND" or words[4] == "LOCAL":
            continue
        name, _, _ = words[7].partition("@")
        number = int(words[8].strip("()")) if len(words) > 8 else None
        file, version = files.get(number, (None, None))
        symbols.setdefault(file, []).append((name, version, words[3]))
    return [name for name in needed if not name.startswith(SYSTEM)], symbols


def stub(folder, soname, symbols):
    """A library of that soname that has these symbols, with their versions; each answers 100, no device."""
    source, script = os.path.join(folder, "stub.c"), os.path.join(folder, "stub.map")
    with open(source, "w") as file:
        for name, _, kind in symbols:
            file.write(f"char {name}[4096];\n" if kind == "OBJECT" else f"long {name}(void) {{ return 100; }}\n")
    versions = {}
    for name, version, _ in symbols:
        versions.setdefault(version, []).append(name)
    command = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", "-O1", f"-Wl,-soname,{soname}", "-o", os.path.join(folder, soname), source]
    named = {version: names for version, names in versions.items() if version}
    if named:
        with open(script, "w") as file:
            for version, names in sorted(named.items()):
                file.write(f"{version} {{ global: {'; '.join(names)}; }};\n")
        command.insert(1, f"-Wl,--version-script,{script}")
    subprocess.run(command, check=True)


def bindings(path, folder, preload):
    """Loads the plugin with all symbols bound at once: (symbol, version) and the library that it got."""
    env = dict(os.environ, LD_LIBRARY_PATH=folder, LD_BIND_NOW="1", LD_DEBUG="bindings", GVMM_PRELOAD="observe")
    env["LD_DEBUG_OUTPUT"] = os.path.join(folder, "bindings")
    if preload:
        env["LD_PRELOAD"] = preload
    load = f"import ctypes; p = ctypes.CDLL({path!r}); print('loaded', bool(p.GetPjrtApi))"
    done = subprocess.run([sys.executable, "-c", load], env=env, capture_output=True, text=True)
    found = {}
    for log in glob.glob(os.path.join(folder, "bindings.*")):
        with open(log, errors="replace") as file:
            for line in file:
                match = re.search(r"binding file (\S+) \[0\] to (\S+) \[0\]: normal symbol `(\w+)'(?: \[(\S+)\])?", line)
                if match and match[1] == path and match[3].startswith("hip"):
                    found[match[3], match[4]] = os.path.basename(match[2])
        os.remove(log)
    return found, done


def exported(path):
    lines = (line.split() for line in readelf("--dyn-syms", path).splitlines())
    return {words[7] for words in lines if len(words) == 8 and words[6] != "UND" and words[7].startswith("hip")}


def main():
    ours = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        path = plugin(sys.argv[2] if len(sys.argv) > 2 else "", folder)
        if path is None:
            print(f"skipped: {PACKAGE} is neither installed nor to be downloaded here")
            return 0
        path = os.path.abspath(path)
        needed, symbols = wanted(path)
        stubs = os.path.join(folder, "stubs")
        os.mkdir(stubs)
        for soname in needed:
            stub(stubs, soname, symbols.get(soname, []) + (symbols.get(None, []) if soname == needed[0] else []))
        bare, _ = bindings(path, stubs, None)
        found, done = bindings(path, stubs, ours)
        answered, name = exported(ours), os.path.basename(ours)
        print("| call | version that the plugin asks for | without | preloaded |\n|---|---|---|---|")
        wrong = 0
        for (symbol, version), library in sorted(found.items()):
            should = name if symbol in answered else bare.get((symbol, version))
            wrong += library != should
            if symbol in answered or library != should:
                print(f"| {symbol} | {version} | {bare.get((symbol, version))} | {library} |")
        others = sum(1 for symbol, _ in found if symbol not in answered)
        ask = sum(1 for symbol, _, _ in symbols.get("libamdhip64.so.7", []) if symbol in answered)
        print(f"\n{others} other HIP functions bound as without; {done.stdout.strip() or done.stderr.strip()[-200:]}")
        print(f"{ask} calls are ours to answer, {sum(v == name for v in found.values())} are bound to us, {wrong} wrong")
        return 1 if wrong or ask == 0 or ask != sum(v == name for v in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
