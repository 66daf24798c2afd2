"""Bare roots of Debian, in which scripts/test_image builds and scripts/test_release installs."""
import shutil
import subprocess
from pathlib import Path


def run(*command, **options):
    return subprocess.run(command, check=True, **options)


def bare_root(work, release="bookworm"):
    """A release of Debian with what its image has, and this machine's ways to packages."""
    root = work / ("debian" if release == "bookworm" else f"debian-{release}")
    if root.exists():
        return root
    sources = run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", capture_output=True, text=True).stdout.split("\n")
    mirror = next(line.split()[0] for line in sources if line.endswith(" bookworm") and "security" not in line)
    part = root.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    run("debootstrap", "--variant=minbase", release, str(part), mirror, stdout=subprocess.DEVNULL)
    if release != "bookworm":
        (part / "etc/apt/sources.list").write_text(f"deb {mirror} {release} main\n")
        for conf in Path("/etc/apt/apt.conf.d").glob("*proxy*"):
            shutil.copy(conf, part / "etc/apt/apt.conf.d")
        shutil.copy("/etc/resolv.conf", part / "etc/resolv.conf")
        part.rename(root)
        return root
    for name in ("etc/apt", "usr/share/keyrings"):
        run("cp", "-a", f"/{name}/.", str(part / name))
    shutil.copy("/etc/resolv.conf", part / "etc/resolv.conf")
    # Package sources other than Debian's are left out: a bare root lacks the keys and certificates that they need.
    for listed in (part / "etc/apt/sources.list.d").glob("*"):
        if "debian" not in listed.name:
            listed.unlink()
    if (part / "etc/apt/sources.list.d/debian.sources").exists():
        (part / "etc/apt/sources.list").unlink(missing_ok=True)
    part.rename(root)
    return root
