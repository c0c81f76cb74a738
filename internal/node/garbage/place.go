package garbage

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/internal/node/podfiles"
	"jettison/reclaim"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// filesystem is one by statfs(2).
type filesystem struct {
	Device              uint64 // st_dev
	reclaim.ImageFsSize        // available: what an ordinary user may still write
}

var errNoHost = errors.New("the host's root directory is not open")

// hostFs asks for the file system that a directory of the host lies on, or would.
func (c *Collector) hostFs(dir string) (out filesystem, err error) {
	if c.o.Host == nil {
		return out, errNoHost
	}
	fd, err := c.o.Host.Dir(dir)
	for errors.Is(err, os.ErrNotExist) && dir != "/" && dir != "." {
		dir = path.Dir(dir)
		fd, err = c.o.Host.Dir(dir)
	}
	if err != nil {
		return out, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	var fs unix.Statfs_t
	for _, call := range []func() error{func() error { return unix.Fstat(fd, &st) },
		func() error { return unix.Fstatfs(fd, &fs) }} {
		for err = unix.EINTR; err == unix.EINTR; {
			err = call()
		}
		if err != nil {
			return out, fmt.Errorf("statfs the host's %s: %w", dir, err)
		}
	}
	unit := uint64(fs.Frsize)
	if unit == 0 {
		unit = uint64(fs.Bsize)
	}
	out.Device, out.CapacityBytes, out.AvailableBytes = st.Dev, fs.Blocks*unit, fs.Bavail*unit
	return out, nil
}

// lookAtPlaces sees what pods have left outside the runtime. What cannot be seen is not collected,
// and noted.
func (c *Collector) lookAtPlaces(v *view) {
	if c.o.Host != nil {
		c.lookAtLogs(v)
		c.lookAtLinks(v)
		c.lookAtVolumes(v)
	}
	if c.fs != nil {
		c.lookAtCgroups(v)
	}
}

func (c *Collector) lookAtLogs(v *view) {
	entries, err := podfiles.List(c.o.Host, c.o.PodLogsDir)
	v.doubt(err)
	for _, e := range entries {
		if !e.Dir && reclaim.PodOfLogDir(e.Name) != "" {
			what := fmt.Sprintf("log directory entry %.128q", e.Name)
			v.look.Left = append(v.look.Left,
				reclaim.Left{What: what, Why: "not a directory, though it is called as a pod's"})
			continue
		}
		v.look.LogDir = append(v.look.LogDir, e.Name)
	}
}

func (c *Collector) lookAtLinks(v *view) {
	entries, err := podfiles.List(c.o.Host, linksDir)
	v.doubt(err)
	for _, e := range entries {
		if !e.Link {
			continue
		}
		// A link to elsewhere has another owner, and one that is gone by now has none.
		if dangles, err := c.remover.Dangling(linksDir, e.Name); err == nil && dangles {
			v.look.Links = append(v.look.Links, reclaim.Link{Name: e.Name})
		}
	}
}

// lookAtVolumes sees what evictions have put aside and not removed.
func (c *Collector) lookAtVolumes(v *view) {
	uids, err := c.remover.PutAside()
	v.doubt(err)
	v.look.Aside = uids
}

// lookAtCgroups sees the cgroups of pods, and which of them have processes. One that cannot be read
// counts as one that has.
func (c *Collector) lookAtCgroups(v *view) {
	names, events := make([]byte, 16<<10), make([]byte, 256)
	for _, root := range podindex.PodRoots(c.o.CgroupRoot) {
		err := c.fs.Children(root, names, func(name string) {
			if p, ok := stats.ParsePodCgroup(root, name); ok {
				v.look.Cgroups = append(v.look.Cgroups, reclaim.PodCgroup{Path: p.Path, PodUID: p.UID,
					Populated: true})
			}
		})
		v.doubt(err)
	}
	there := v.look.Cgroups[:0]
	for _, p := range v.look.Cgroups {
		g, err := c.fs.Group(p.Path)
		if err == nil {
			var e cgroup.Events
			e, err = g.Events(events)
			g.Close()
			p.Populated = err != nil || e.Populated
		}
		if !errors.Is(err, cgroup.ErrVanished) {
			there = append(there, p)
		}
	}
	v.look.Cgroups = there
}
