package kubeletdetect

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// nodesOwn reports whether a process belongs to the node, as its kubelet does: all its user ids are
// 0, it is in the user namespace of the node's process 1, its program has no set-uid bit, and it is
// in no pod. Any other process may have been named by a user: a link to sudo or su runs as root
// too. gone: the process has ended.
//
// It is called for the few processes with a kubelet's name, or for all if something listens on a
// kubelet's port. It reads two short files and a link of each. The cgroup is checked before the
// program, because the program of a pod's process may be on a file server of the pod.
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
	if set, known := p.setUID(dir); known {
		return !set, false, nil
	}
	return p.countsUnseen(dir)
}

// byRoot reports whether the real, effective, saved and file system user id of a process are all 0.
// In a program with a set-uid bit the real one is the caller's.
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

// nodesUser reports whether a process is in the user namespace of process 1, on a node the initial
// one. If process 1 does not show it, the initial namespace and this program's own are accepted. If
// the kernel has no user namespaces, or does not show a process's, the user ids suffice: other
// namespaces usually map to ids other than 0.
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

// setUID reports whether a process's program has a set-uid bit. known is false if the program is
// invisible. It must not be called for a pod's process: a network file system is not asked for
// attributes, but revalidates the name and may hang (v6.12 fs/namei.c complete_walk).
func (p *proc) setUID(dir string) (set, known bool) {
	var s unix.Statx_t
	err := unix.Statx(p.fd, dir+"/exe", unix.AT_STATX_DONT_SYNC, unix.STATX_MODE, &s)
	return s.Mode&unix.S_ISUID != 0, err == nil
}

// noLogin is the login user id of a process that no login started (v6.12 include/uapi/linux/audit.h
// AUDIT_UID_UNSET).
const noLogin = "4294967295"

// countsUnseen reports whether a process of root with an invisible program counts as the node's own.
// Without CAP_SYS_PTRACE, programs are invisible if they have more capabilities than this one, or a
// set-uid bit, and each user of the node may start the latter with any name. The login user id is
// inherited and takes CAP_AUDIT_CONTROL to change (v6.12 kernel/audit.c audit_set_loginuid_perm),
// so it distinguishes services. A process that a user's login started, such as a kubelet that an
// administrator starts with sudo, counts only if root listens on a kubelet's port.
func (p *proc) countsUnseen(dir string) (own, gone bool, err error) {
	b, gone, err := p.read(dir+"/loginuid", p.buf[:16])
	if err != nil && !denied(err) {
		return false, false, err
	}
	// If the kernel has no such file, or does not show it, the process counts.
	if id := string(bytes.TrimSpace(b)); gone || err != nil || id == noLogin || id == "0" {
		return true, false, nil
	}
	all, err := p.listening()
	return len(all) > 0, false, err
}

// ofPod reports whether a process is in a pod's cgroup. A cgroup path longer than PATH_MAX counts
// as a pod's: reading it fails (v6.1 kernel/cgroup/cgroup.c proc_cgroup_show), and 17 nested levels
// are made only to hide.
func (p *proc) ofPod(dir string) (pod, gone bool, err error) {
	b, gone, err := p.read(dir+"/cgroup", p.buf)
	if errors.Is(err, unix.ENAMETOOLONG) {
		return true, false, nil
	}
	if gone || err != nil {
		return false, gone, err
	}
	for line := range strings.Lines(string(b)) {
		// hierarchy:controllers:path; a path may contain colons.
		if parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(parts) == 3 &&
			podPath(parts[2]) {
			return true, false, nil
		}
	}
	return false, false, nil
}

// podPath reports whether a cgroup is below kubepods, for either driver:
// "/kubepods/besteffort/pod<uid>/...", "/kubepods.slice/kubepods-besteffort.slice/...",
// "/kubelet.slice/kubelet-kubepods.slice/..." (below a cgroupRoot). Inside a cgroup namespace the
// path may only be "/../../kubepods-pod<uid>.slice/..." or "/../../pod<uid>/...".
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

// uidShape reports whether a text has the form of a pod's UID: a UUID, or the hash that a kubelet
// gives a static pod.
func uidShape(text string) bool {
	return len(text) == 36 && strings.Count(text, "-") == 4 || len(text) == 32 &&
		!strings.Contains(text, "-")
}
