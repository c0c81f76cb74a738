package kill

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"jettison/cgroup"
)

// CRI-O runs a monitor process, conmon, for each container. The monitor writes the container's log
// and, at its end, its exit code. With conmon_cgroup = "pod", as on OpenShift, each monitor has a
// cgroup in the pod's: with the systemd driver always, with cgroupfs if CPUs are set for it (cri-o
// v1.37 internal/oci/oci_linux.go, internal/config/cgmgr MoveConmonToCgroup). A kill of the whole pod
// would kill the monitors too: the runtime then reports exit code -1, and the last log lines may be
// lost. So the kill spares the monitors, which end with their containers.

// monitorPrefix begins the name of a monitor's cgroup.
var monitorPrefix = []byte("crio-conmon-")

// monitors finds the cgroups of monitors below a victim's. Pin sets proc, the helper that lists the
// victim's processes sets any, and other threads read both.
type monitors struct {
	proc string
	any  atomic.Bool // a child of the victim's cgroup is named as a monitor's
}

// isMonitor reports whether a child of the victim's cgroup holds only monitors: every process
// executes conmon and is a child of the node's init or of CRI-O, and the group has no child. The name
// alone does not count, because a privileged container can create a cgroup with any name.
func (m *monitors) isMonitor(name []byte, g *cgroup.Group) bool {
	if !bytes.HasPrefix(name, monitorPrefix) {
		return false
	}
	var buf [512]byte
	only := true
	err := g.Procs(buf[:], func(pid int) { only = only && m.isMonitorProcess(pid) })
	return err == nil && only && !hasChildren(g)
}

// isMonitorProcess reports whether a process is a monitor. Some of CRI-O's packages prefix the program
// with "crio-" (cri-o/packaging#71). A process of a container is not a child of the node's init: a
// monitor is the subreaper of its container (conmon v2.2 src/conmon.c).
func (m *monitors) isMonitorProcess(pid int) bool {
	if name := strings.TrimPrefix(m.executable(pid), "crio-"); name != "conmon" && name != "conmonrs" {
		return false
	}
	parent, err := m.parent(pid)
	return err == nil && (parent == 1 || m.executable(parent) == "crio")
}

// executable returns the name of a process's program, also after an upgrade has deleted its file;
// "" if it cannot be read.
func (m *monitors) executable(pid int) string {
	path, _ := os.Readlink(filepath.Join(m.proc, strconv.Itoa(pid), "exe"))
	return strings.TrimSuffix(filepath.Base(path), " (deleted)")
}

// parent returns the ID of a process's parent (proc_pid_stat(5)).
func (m *monitors) parent(pid int) (int, error) {
	text, err := os.ReadFile(filepath.Join(m.proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0, errors.New("no parent in stat")
	}
	return strconv.Atoi(string(fields[1]))
}

// hasChildren reports whether a group has child groups. An error counts as one.
func hasChildren(g *cgroup.Group) (found bool) {
	w := cgroup.Walker{Shallow: true}
	w.Walk(g, func(*cgroup.Group) bool {
		found = w.Child() != nil
		return !found
	})
	return found || w.Err() != nil
}

// lookForMonitors searches for children of the victim's cgroup that are named as monitors' cgroups.
func (h *helper) lookForMonitors() {
	h.walker.Shallow = true
	h.walker.Walk(&h.v.group.each, h.look)
	h.walker.Shallow = false
}

func (h *helper) lookAtGroup(*cgroup.Group) bool {
	found := bytes.HasPrefix(h.walker.Child(), monitorPrefix)
	if found {
		h.v.file.monitors.any.Store(true)
	}
	return !found
}

// killOthers writes cgroup.kill of each child of a victim's cgroup that is no monitor. It kills the
// containers first, and then reads what is named as a monitor.
func (m *monitors) killOthers(top *cgroup.Group) (err error) {
	w := cgroup.Walker{Shallow: true}
	for _, named := range []bool{false, true} {
		w.Walk(top, func(g *cgroup.Group) bool {
			name := w.Child()
			if name == nil { // a process outside of all children is no monitor
				if holdsProcess(g) {
					err = killGroup(g)
					return false
				}
				return true
			}
			if bytes.HasPrefix(name, monitorPrefix) != named || named && m.isMonitor(name, g) {
				return true
			}
			err = errors.Join(err, killGroup(g))
			return true
		})
		err = errors.Join(err, w.Err())
	}
	return err
}

// holdsProcess reports whether a group itself lists a process. An error counts as one.
func holdsProcess(g *cgroup.Group) (found bool) {
	var buf [64]byte
	err := g.Procs(buf[:], func(int) { found = true })
	return found || err != nil && !errors.Is(err, cgroup.ErrVanished)
}

// killGroup kills the processes of a group and those below. A group that has vanished is no error.
func killGroup(g *cgroup.Group) error {
	fd, err := g.OpenKill()
	if err == nil {
		err = g.WriteKill(fd)
		_ = os.NewFile(uintptr(fd), "cgroup.kill").Close()
	}
	if errors.Is(err, cgroup.ErrVanished) {
		return nil
	}
	return err
}

// othersEmpty reports whether only monitors have a process. An error counts as a process.
func (m *monitors) othersEmpty(top *cgroup.Group) bool {
	var buf [512]byte
	w, empty := cgroup.Walker{Shallow: true}, true
	w.Walk(top, func(g *cgroup.Group) bool {
		name := w.Child()
		if name == nil {
			empty = !holdsProcess(g)
			return empty
		}
		e, err := g.Events(buf[:])
		if errors.Is(err, cgroup.ErrVanished) || err == nil && !e.Populated {
			return true
		}
		empty = err == nil && m.isMonitor(name, g)
		return empty
	})
	return empty && w.Err() == nil
}
