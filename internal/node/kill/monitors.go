package kill

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
)

// CRI-O runs a monitor process, conmon, for each container. The monitor writes the container's log
// and, at its end, its exit code. With conmon_cgroup = "pod", as on OpenShift, each monitor has a
// cgroup in the pod's: with the systemd driver always, with cgroupfs if CPUs are set for it (cri-o
// v1.37 internal/oci/oci_linux.go, internal/config/cgmgr MoveConmonToCgroup). A kill of the whole
// pod would kill the monitors too: the runtime then reports exit code -1, and the last log lines
// may be lost. So the kill spares the monitors, which end with their containers.

// monitorPrefix begins the name of a monitor's cgroup.
var monitorPrefix = []byte("crio-conmon-")

// maxChildren bounds the child groups of a pod that is killed child by child. Such a pod has two
// for each container. A privileged container can create 100,000, and would die late by them.
const maxChildren = 512

// monitors finds the cgroups of monitors below a victim's. Pin sets its fields.
type monitors struct {
	proc     string
	possible bool // the runtime may run monitors there
}

// among reports whether a child of the victim's cgroup is named as a monitor's, so that the kill
// goes child by child. A pod whose children cannot be listed, are too many, or have a process
// outside of them, is killed as a whole: to end its processes is more important.
func (m *monitors) among(top *cgroup.Group, buf []byte) (found bool) {
	if !m.possible {
		return false
	}
	n := 0
	err := top.EachChild(buf, func(name []byte) bool {
		found = found || bytes.HasPrefix(name, monitorPrefix)
		n++
		return n <= maxChildren
	})
	return found && err == nil && n <= maxChildren && !holdsProcess(top)
}

// isMonitor reports whether a child of the victim's cgroup holds only monitors: every process
// executes conmon and is a child of the node's init or of CRI-O, and the group has no child. The
// name alone does not count, because a privileged container can create a cgroup with any name.
func (m *monitors) isMonitor(name []byte, g *cgroup.Group) bool {
	if !bytes.HasPrefix(name, monitorPrefix) {
		return false
	}
	var buf [512]byte
	only := true
	err := g.Procs(buf[:], func(pid int) { only = only && m.isMonitorProcess(pid) })
	if err != nil || !only {
		return false
	}
	err = g.EachChild(buf[:], func([]byte) bool { only = false; return false })
	return err == nil && only
}

// isMonitorProcess reports whether a process is a monitor. Some of CRI-O's packages prefix the
// program with "crio-" (cri-o/packaging#71). A process of a container is not a child of the node's
// init: a monitor is the subreaper of its container (conmon v2.2 src/conmon.c).
func (m *monitors) isMonitorProcess(pid int) bool {
	if name := strings.TrimPrefix(m.executable(pid), "crio-"); name != "conmon" && name != "conmonrs" {
		return false
	}
	parent := parentOf(m.proc, pid)
	return parent == 1 || m.executable(parent) == "crio"
}

// executable returns the name of a process's program, also after an upgrade has deleted its file;
// "" if it cannot be read.
func (m *monitors) executable(pid int) string {
	path, _ := os.Readlink(filepath.Join(m.proc, strconv.Itoa(pid), "exe"))
	return strings.TrimSuffix(filepath.Base(path), " (deleted)")
}

// eachOther calls visit for each child of the victim's cgroup that holds no monitor: first for the
// containers, then for what is only named as a monitor's. child and buf are scratch space. It
// returns the number of monitors' groups. A group that has vanished is no error.
func (m *monitors) eachOther(top, child *cgroup.Group, buf []byte,
	visit func(*cgroup.Group) error) (spared int, err error) {
	for _, named := range []bool{false, true} {
		listErr := top.EachChild(buf, func(name []byte) bool {
			if bytes.HasPrefix(name, monitorPrefix) != named {
				return true
			}
			one := top.ChildInto(name, child)
			if one == nil && m.isMonitor(name, child) {
				spared++
			} else if one == nil {
				one = visit(child)
			}
			child.Close()
			if !errors.Is(one, cgroup.ErrVanished) {
				err = errors.Join(err, one)
			}
			return true
		})
		err = errors.Join(err, listErr)
	}
	return spared, err
}

// killGroup writes cgroup.kill of a group.
func killGroup(g *cgroup.Group) error {
	fd, err := g.OpenKill()
	if err == nil {
		err = g.WriteKill(fd)
		unix.Close(fd)
	}
	return err
}

// holdsProcess reports whether a group itself lists a process. An error counts as one.
func holdsProcess(g *cgroup.Group) (found bool) {
	var buf [64]byte
	err := g.Procs(buf[:], func(int) { found = true })
	return found || err != nil && !errors.Is(err, cgroup.ErrVanished)
}

var errPopulated = errors.New("populated")

// onlyMonitors reports whether monitors are left and no other group of the victim has a process. An
// error counts as a process.
func (m *monitors) onlyMonitors(top *cgroup.Group) bool {
	var child cgroup.Group
	buf := make([]byte, 2*killBuffer)
	if !m.among(top, buf) {
		return false
	}
	spared, err := m.eachOther(top, &child, buf[killBuffer:], func(g *cgroup.Group) error {
		e, err := g.Events(buf[:killBuffer])
		if err == nil && e.Populated {
			err = errPopulated
		}
		return err
	})
	return err == nil && spared > 0
}

// cpuTime returns the CPU time that the processes to be killed have used, without that of monitors.
// It falls if the runtime removes a container's cgroup.
func (m *monitors) cpuTime(top *cgroup.Group) (used time.Duration, err error) {
	var child cgroup.Group
	buf := make([]byte, 2*killBuffer)
	if !m.among(top, buf) {
		return top.CPUUsage(buf)
	}
	_, err = m.eachOther(top, &child, buf[killBuffer:], func(g *cgroup.Group) error {
		one, err := g.CPUUsage(buf[:killBuffer])
		used += one
		return err
	})
	return used, err
}
