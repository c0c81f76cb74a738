package read

import (
	"fmt"
	"os"
	"strings"

	"jettison/cgroup"
	"jettison/stats"
)

// processes visits every process of a pod's cgroup, of its containers, and of the cgroups one level
// below these, up to maxContainers of each level. crun puts a container's processes one level lower
// with the systemd driver ("crio-ID.scope/container", src/libcrun/cgroup-systemd.c).
func processes(fs *cgroup.FS, path string, buf []byte, visit func(pid int)) {
	for level := []string{path}; len(level) > 0; {
		var below []string
		for _, p := range level {
			if g, err := fs.Group(p); err == nil {
				_ = g.Procs(buf, visit)
				g.Close()
			}
			if strings.Count(p, "/") >= strings.Count(path, "/")+2 {
				continue
			}
			_ = fs.ChildrenUntil(p, buf, func(name string) bool {
				below = append(below, p+"/"+name)
				return len(below) < maxContainers
			})
		}
		level = below
	}
}

// FindSelf finds the cgroup of this process, so that Collect can mark its pod. It tries the path in
// /proc first. If a cgroup namespace hides that path, it searches every pod for this process's ID.
// It returns an error if both fail. A process outside every pod is no error.
func (c *Reader) FindSelf() error {
	pid := os.Getpid()
	path, ok, err := c.proc.SelfCgroup()
	if err != nil {
		return fmt.Errorf("find own cgroup: %w", err)
	}
	if ok {
		found := false
		if g, err := c.fs.Group(path); err == nil {
			_ = g.Procs(c.buf, func(p int) { found = found || p == pid })
			g.Close()
		}
		if found {
			c.self = path
			return nil
		}
	}
	for _, root := range c.pods.roots {
		var pods []string
		if err := c.fs.Children(root.path, c.pods.names, func(name string) {
			if p, ok := stats.ParsePodCgroup(root.path, name); ok {
				pods = append(pods, p.Path)
			}
		}); err != nil {
			return fmt.Errorf("find own cgroup: %w", err)
		}
		for _, pod := range pods {
			processes(c.fs, pod, c.buf, func(p int) {
				if p == pid {
					c.self = pod
				}
			})
		}
	}
	if c.self == "" && !ok && path != "" {
		return fmt.Errorf("find own cgroup: /proc/self/cgroup names /%s, but no pod contains process %d",
			path, pid)
	}
	return nil
}

// Self returns the cgroup that FindSelf found; empty: this process is in no pod, or was not
// found.
func (c *Reader) Self() string { return c.self }
