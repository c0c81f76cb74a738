package kubeletdetect

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// nodesOwn says whether a process is the node's own, as its kubelet is: all its user ids are 0, it
// is in the user namespace of the node's process 1, its program has no set-uid bit, and it is in no
// pod. Everything else is somebody's who may call a process what he likes: a name by a link to sudo
// or su runs as root too. gone: the process has ended.
//
// It is for the few processes that are asked about by their name, or all of them where something
// listens on a kubelet's port; it reads two short files and a link of each. A pod's is known by its
// cgroup first, before its program is asked for anything: that may lie on a server of the pod's.
func (p *proc) nodesOwn(dir string) (own, gone bool, err error) {
	pod, gone, err := p.ofPod(dir)
	if err != nil || gone || pod {
		return false, gone, err
	}
	root, gone, err := p.byRoot(dir)
	if err != nil || gone || !root {
		return false, gone, err
	}
	same, gone, err := p.nodesUser(dir)
	if err != nil || gone || !same {
		return false, gone, err
	}
	if set, told := p.setUID(dir); told {
		return !set, false, nil
	}
	return p.proven(dir)
}

// byRoot says whether the real, effective, saved and file system user id of a process are all 0: in
// a program with a set-uid bit the real one is its caller's.
func (p *proc) byRoot(dir string) (root, gone bool, err error) {
	b, gone, err := p.read(dir+"/status", p.buf)
	if gone || err != nil {
		return false, gone, err
	}
	// a name's line ends are escaped (v6.12 fs/proc/array.c proc_task_name)
	for line := range bytes.Lines(b) {
		ids, ok := bytes.CutPrefix(line, []byte("Uid:"))
		if !ok {
			continue
		}
		f := bytes.Fields(ids)
		if len(f) != 4 {
			break
		}
		for _, id := range f {
			if string(id) != "0" {
				return false, false, nil
			}
		}
		return true, false, nil
	}
	return false, false, fmt.Errorf("%s/%s/status: no line \"Uid:\" with four ids", p.mount, dir)
}

// initialUser is the initial user namespace (v6.12 include/linux/proc_ns.h PROC_USER_INIT_INO).
const initialUser = "user:[4026531837]"

// nodesUser says whether a process is in the user namespace of process 1: on a node that is the
// initial one. Where process 1 does not show it, the initial one counts and this program's own.
// Where the kernel has none, or does not show a process's, user ids tell all there is: those of
// another namespace are mostly mapped to others than 0.
func (p *proc) nodesUser(dir string) (same, gone bool, err error) {
	want := []string{initialUser}
	switch first, err := p.link("1/ns/user"); {
	case err == nil:
		want[0] = first
	case err == unix.ENOENT:
		return true, false, nil
	case !denied(err):
		return false, false, fmt.Errorf("read %s/1/ns/user: %w", p.mount, err)
	default:
		if own, err := p.link("self/ns/user"); err == nil {
			want = append(want, own)
		}
	}
	got, err := p.link(dir + "/ns/user")
	switch {
	case err == unix.ENOENT || err == unix.ESRCH:
		return false, true, nil
	case denied(err):
		return true, false, nil
	case err != nil:
		return false, false, fmt.Errorf("read %s/%s/ns/user: %w", p.mount, dir, err)
	}
	return slices.Contains(want, got), false, nil
}

func (p *proc) link(path string) (target string, err error) {
	var b [64]byte
	n, err := unix.Readlinkat(p.fd, path, b[:])
	return string(b[:max(n, 0)]), err
}

func denied(err error) bool { return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) }

// setUID says whether a process's program has a set-uid bit; not told: it cannot be seen. It is not
// for a pod's process: a file system on the network is asked for no figures, but whether the name
// is the file's still, and may hang (v6.12 fs/namei.c complete_walk).
func (p *proc) setUID(dir string) (set, told bool) {
	var s unix.Statx_t
	err := unix.Statx(p.fd, dir+"/exe", unix.AT_STATX_DONT_SYNC, unix.STATX_MODE, &s)
	return s.Mode&unix.S_ISUID != 0, err == nil
}

// noLogin is the login user id of what no login has started (v6.12 include/uapi/linux/audit.h
// AUDIT_UID_UNSET).
const noLogin = "4294967295"

// proven says whether a process of root whose program cannot be seen is taken for the node's own.
// Without CAP_SYS_PTRACE none can be that has more capabilities than this one, nor any with a
// set-uid bit, which each user of the node may start by any name. By its login user id, which is
// inherited and takes CAP_AUDIT_CONTROL to change (v6.12 kernel/audit.c audit_set_loginuid_perm), a
// service is told from these. What a user's login has started, as an administrator may a kubelet by
// sudo, is one only where root listens on a kubelet's port, too.
func (p *proc) proven(dir string) (own, gone bool, err error) {
	b, gone, err := p.read(dir+"/loginuid", p.buf[:16])
	if err != nil && !denied(err) {
		return false, false, err
	}
	// Where the kernel has no such file, or does not show it, there is nothing against it.
	if id := string(bytes.TrimSpace(b)); gone || err != nil || id == noLogin || id == "0" {
		return true, false, nil
	}
	all, err := p.listening()
	return len(all) > 0, false, err
}

// ofPod says whether a process is in a pod's cgroup. One whose path is longer than PATH_MAX counts
// as a pod's: such a file fails as a whole (v6.1 kernel/cgroup/cgroup.c proc_cgroup_show), and who
// makes 17 levels below one another hides something.
func (p *proc) ofPod(dir string) (pod, gone bool, err error) {
	b, gone, err := p.read(dir+"/cgroup", p.buf)
	if errors.Is(err, unix.ENAMETOOLONG) {
		return true, false, nil
	}
	if gone || err != nil {
		return false, gone, err
	}
	for line := range strings.Lines(string(b)) {
		// hierarchy:controllers:path; a path may hold colons.
		if parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(parts) == 3 &&
			podPath(parts[2]) {
			return true, false, nil
		}
	}
	return false, false, nil
}

// podPath says whether a cgroup lies below kubepods, whichever driver made that:
// "/kubepods/besteffort/pod<uid>/...", "/kubepods.slice/kubepods-besteffort.slice/...",
// "/kubelet.slice/kubelet-kubepods.slice/..." (below a cgroupRoot). Seen from a cgroup namespace
// inside it may only say "/../../kubepods-pod<uid>.slice/..." or "/../../pod<uid>/...".
func podPath(path string) bool {
	inside := strings.HasPrefix(path, "/..")
	for part := range strings.SplitSeq(path, "/") {
		slice, ok := strings.CutSuffix(part, ".slice")
		if part == "kubepods" || ok && (slice == "kubepods" || strings.HasSuffix(slice, "-kubepods") ||
			strings.HasPrefix(slice, "kubepods-")) {
			return true
		}
		if uid, ok := strings.CutPrefix(part, "pod"); ok && inside && uidShape(uid) {
			return true
		}
	}
	return false
}

// uidShape says whether a text looks like a pod's UID: a UUID, or the hash that a kubelet gives a
// static pod.
func uidShape(text string) bool {
	return len(text) == 36 && strings.Count(text, "-") == 4 || len(text) == 32 &&
		!strings.Contains(text, "-")
}
