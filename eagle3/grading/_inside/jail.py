"""Limits for a process that runs student code: namespaces, resource limits, no rights.

Linux with namespaces: the process sees only Python's own folders, read-only, and an
empty folder of its own; it has no network and no other process. Elsewhere resource
limits and an audit hook are all there is, and the hook is a fence, not a wall.
"""

import ctypes
import os
import re
import resource
import signal
import socket
import sys

NEWNS, NEWUTS, NEWIPC = 0x00020000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
NOBODY = 65534
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache")
# statvfs flag -> mount flag: a remount in a user namespace must keep what was set.
KEPT = ((os.ST_NOSUID, MS_NOSUID), (getattr(os, "ST_NODEV", 4), MS_NODEV))
WORK, COVER = "/hand_in", "size=64k,mode=755"


def call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def mount(source, target, kind=None, flags=0, data=None):
    texts = [t if t is None else os.fsencode(t) for t in (source, target, kind, data)]
    call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3])


def readable_folders():
    """What Python needs to import the standard library, numpy and torch."""
    packages = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    paths = [sys.base_prefix, sys.prefix, *packages, *SYSTEM]
    real = {path: os.path.realpath(path) for path in paths if os.path.exists(path)}
    return {path: place for path, place in real.items() if place != "/"}


def separate():
    """Leave all namespaces; the next child is alone in its own. Linux only."""
    spaces = NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        call("unshare", spaces)
        return
    call("unshare", spaces | NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def build_root(root, hidden):
    """A file system of Python's folders and an empty one, then nothing else."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=8m,mode=755")
    readable = readable_folders()
    covers = places_of(hidden, readable) - set(readable)
    # From the top down: Python may lie in a hidden folder that lies in Python's.
    for path in sorted({*readable, *covers}, key=len):
        if path in covers:
            os.makedirs(root + path, exist_ok=True)
            mount("tmpfs", root + path, "tmpfs", MS_NOSUID | MS_NODEV, COVER)
        else:
            bind(readable[path], root + path)
    for path in covers:
        flags = MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV
        mount(None, root + path, None, flags, COVER)
    os.makedirs(root + "/dev", exist_ok=True)
    for name in ("null", "zero", "urandom"):
        bind(f"/dev/{name}", f"{root}/dev/{name}", read_only=False)
    os.makedirs(root + WORK)
    os.chmod(root + WORK, 0o777)
    mount("tmpfs", root + WORK, "tmpfs", MS_NOSUID | MS_NODEV, "size=8m,mode=777")
    mount(None, root, None, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, "size=8m")
    os.chroot(root)
    os.chdir(WORK)


def places_of(hidden, readable):
    """Where folders to hide would be seen: one may be bound under several names."""
    return {
        path + real[len(place) :]
        for real in map(os.path.realpath, hidden)
        for path, place in readable.items()
        if os.path.isdir(real) and real.startswith(f"{place}/")
    }


def bind(place, target, read_only=True):
    if os.path.isdir(place):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(place, target, None, MS_BIND | MS_REC)
    if read_only:
        for path in mounts_in(target):
            make_read_only(path)


def mounts_in(target):
    """A mount and those below it, which the flags of the upper one don't touch."""
    with open("/proc/self/mountinfo", "rb") as file:
        fields = [line.split()[4] for line in file]
    paths = [os.fsdecode(re.sub(rb"\\(\d{3})", unescaped, path)) for path in fields]
    return [p for p in paths if p == target or p.startswith(f"{target}/")]


def unescaped(found):
    return bytes([int(found.group(1), 8)])


def make_read_only(path):
    was = os.statvfs(path).f_flag
    kept = sum(flag for bit, flag in KEPT if was & bit)
    for extra in (kept, kept | MS_NOSUID | MS_NODEV):
        try:
            mount(None, path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | extra)
            return
        except OSError as error:
            failure = error
    raise failure


def drop_rights():
    """No root, no capabilities, and no way to get them back."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3 of the interface
    libc.capset(header, (ctypes.c_uint32 * 6)())
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def end_with_parent():
    """Nobody is left behind when the helper is killed. Linux only; ends with setuid."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def limit(cpu_s, memory_mb):
    """Time, memory, size of files, no new processes. Kept by the system."""
    limits = [
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, 1 << 20),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 64),
    ]
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        limits.append((resource.RLIMIT_AS, used + (memory_mb << 20)))
    for name, value in limits:
        resource.setrlimit(name, (value, value))


def forbid_processes():
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


BANNED = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn",
    "os.kill", "ctypes.", "shutil.", "os.remove", "os.rename", "os.rmdir",
    "os.chmod", "os.chown", "os.link", "os.symlink", "os.truncate", "os.mkdir",
    "os.utime", "os.setxattr", "os.removexattr", "sqlite3.", "signal.",
)  # fmt: skip


def fence(readable, work, hidden):
    """Where there are no namespaces: refuse what Python can see coming."""
    reads = {*readable, *readable.values(), work, "/dev/null", "/dev/urandom"}
    covers = {os.path.realpath(path) for path in hidden}
    # What is told last counts: the deepest of these folders that holds the path.
    folders = sorted([*((f, True) for f in reads), *((f, False) for f in covers)])

    def may_read(path):
        open_to = [ok for f, ok in folders if path == f or path.startswith(f"{f}/")]
        return bool(open_to) and open_to[-1]

    def hook(event, arguments):
        if event.startswith(BANNED):
            raise PermissionError(f"{event} is not allowed while you are graded")
        if event not in ("open", "os.listdir", "os.scandir"):
            return
        path = arguments[0]
        if event == "open" and isinstance(path, int):
            return  # what is open already
        path = os.path.realpath(os.fsdecode(path) if path else ".")
        changes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
        writes = event == "open" and (arguments[2] or 0) & changes
        inside = path.startswith(f"{work}/")
        if not (inside if writes else inside or path == work or may_read(path)):
            raise PermissionError(f"{path} can't be opened while you are graded")

    sys.addaudithook(hook)


def enter(order, root):
    """Called in the process that is to run student code; it can't be undone."""
    # Anything that is imported late would need the network's or ctypes' modules.
    quiet = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(quiet, number)
    limit(order["cpu_s"], order["memory_mb"])
    if order["walls"]:
        build_root(root, order["hidden"])
        drop_rights()
        end_with_parent()
        forbid_processes()
        return
    os.chdir(root)
    readable = readable_folders()
    drop_rights_if_readable(readable, root)
    if os.geteuid():
        forbid_processes()
    end_with_parent()
    fence(readable, os.path.realpath(root), order["hidden"])


def drop_rights_if_readable(readable, root):
    """Become nobody, unless nobody could then import anything."""
    above = {root}
    for place in readable.values():
        while place != "/":
            above.add(place)
            place = os.path.dirname(place)
    above.remove(root)
    if os.geteuid() == 0 and all(os.stat(path).st_mode & 1 for path in above):
        os.chown(root, NOBODY, NOBODY)
        drop_rights()


def walls_stand(root):
    """Whether namespaces can be had here: tried in a child that does nothing else."""
    if sys.platform != "linux":
        return False
    child = os.fork()
    if not child:
        code = 1
        try:
            separate()
            inner = os.fork()
            if not inner:
                build_root(root, [])
                drop_rights()
                os._exit(0 if os.listdir(WORK) == [] else 1)
            code = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        finally:
            os._exit(1 if code else 0)
    return os.waitpid(child, 0)[1] == 0


def close_all_but(kept):
    top = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    spans = sorted(kept)
    start = 3
    for number in [*spans, min(top, 4096)]:
        os.closerange(start, number)
        start = number + 1


def kill(pid):
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def receive_order(control):
    """One order and the socket that comes with it; (None, None) at the end."""
    message, numbers, _, _ = socket.recv_fds(control, 1 << 16, 1)
    return (message, numbers[0]) if message and numbers else (None, None)
