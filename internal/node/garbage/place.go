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

// filesystem is a file system as reported by statfs(2).
type filesystem struct {
	Device              uint64 // st_dev
	reclaim.ImageFsSize        // available: bytes that an unprivileged user may still write
}

var errNoHost = errors.New("the host's root directory is not open")

// hostFs returns the file system of a host directory, or of its nearest existing ancestor.
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
			return out, fmt.Errorf("statfs %s on the host: %w", dir, err)
		}
	}
	unit := uint64(fs.Frsize)
	if unit == 0 {
		unit = uint64(fs.Bsize)
	}
	out.Device, out.CapacityBytes, out.AvailableBytes = st.Dev, fs.Blocks*unit, fs.Bavail*unit
	return out, nil
}

// readPlaces reads the leftovers of pods outside the runtime. Unreadable places are recorded as
// problems and not collected.
func (c *Collector) readPlaces(v *view) {
	if c.o.Host != nil {
		c.readLogs(v)
		c.readLinks(v)
		c.readVolumes(v)
	}
	if c.fs != nil {
		c.readCgroups(v)
	}
}

func (c *Collector) readLogs(v *view) {
	entries, err := podfiles.List(c.o.Host, c.o.PodLogsDir)
	v.addProblem(err)
	for _, e := range entries {
		if !e.Dir && reclaim.PodOfLogDir(e.Name) != "" {
			what := fmt.Sprintf("log directory entry %.128q", e.Name)
			v.look.Left = append(v.look.Left,
				reclaim.Left{What: what, Why: "has the name of a pod's log directory, but is not a directory"})
			continue
		}
		v.look.LogDir = append(v.look.LogDir, e.Name)
	}
}

func (c *Collector) readLinks(v *view) {
	entries, err := podfiles.List(c.o.Host, linksDir)
	v.addProblem(err)
	for _, e := range entries {
		if !e.Link {
			continue
		}
		// A link to elsewhere has another owner, and one that no longer exists needs no removal.
		if dangles, err := c.remover.Dangling(linksDir, e.Name); err == nil && dangles {
			v.look.Links = append(v.look.Links, reclaim.Link{Name: e.Name})
		}
	}
}

// readVolumes reads which pods have volumes that an eviction moved aside and did not remove.
func (c *Collector) readVolumes(v *view) {
	uids, err := c.remover.PodsWithMovedVolumes()
	v.addProblem(err)
	v.look.MovedAside = uids
}

// readCgroups reads the cgroups of pods, and which of them have processes. An unreadable cgroup
// counts as populated.
func (c *Collector) readCgroups(v *view) {
	names, events := make([]byte, 16<<10), make([]byte, 256)
	for _, root := range podindex.PodRoots(c.o.CgroupRoot) {
		err := c.fs.Children(root, names, func(name string) {
			if p, ok := stats.ParsePodCgroup(root, name); ok {
				v.look.Cgroups = append(v.look.Cgroups, reclaim.PodCgroup{Path: p.Path, PodUID: p.UID,
					Populated: true})
			}
		})
		v.addProblem(err)
	}
	existing := v.look.Cgroups[:0]
	for _, p := range v.look.Cgroups {
		g, err := c.fs.Group(p.Path)
		if err == nil {
			var e cgroup.Events
			e, err = g.Events(events)
			g.Close()
			p.Populated = err != nil || e.Populated
		}
		if !errors.Is(err, cgroup.ErrVanished) {
			existing = append(existing, p)
		}
	}
	v.look.Cgroups = existing
}
