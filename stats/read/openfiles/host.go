package openfiles

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/seqfile"
	"jettison/stats/read/mounts"
)

// overlay is the upper directory of the overlay that a device is; empty: it is none. A container
// may have been started since the mounts were read, so they are read anew for a device of no disk
// (v6.12 fs/super.c get_anon_bdev) that is not among them, once in a look.
func (f *Finder) overlay(device uint64) string {
	dir := f.overlays[device]
	if dir == "" && unix.Major(device) == 0 && f.mounted.Before(f.began) {
		f.readOverlays()
		dir = f.overlays[device]
	}
	return dir
}

// readOverlays finds the host's overlays, and what it has mounted of files without a name.
func (f *Finder) readOverlays() {
	name := f.proc + "/1/mountinfo"
	f.mounted, f.hosts = time.Now(), nil
	overlays, err := mounts.Overlays(name)
	f.overlays, f.lacks = overlays, err != nil
	if file, err := seqfile.Open(name); err == nil {
		var whole bool
		f.hosts, _, whole = mounts.Unnamed(file)
		file.Close()
		f.lacks = f.lacks || !whole
	} else {
		f.lacks = true
	}
}

// keptByHost counts those that the kubelet has mounted for the pod's volumes, for no process of it
// need live (pkg/volume/util/subpath subpath_linux.go:
// pods/UID/volume-subpaths/VOLUME/CONTAINER/INDEX).
func (f *Finder) keptByHost(ctx context.Context) {
	var of []mounts.Mount
	for i := range f.hosts {
		if strings.Contains(f.hosts[i].Point, "/pods/"+f.uid+"/volume-subpaths/") {
			of = append(of, f.hosts[i])
		}
	}
	if len(of) == 0 {
		return
	}
	f.pid, f.member = 1, true // it need not be a member: the path says whose it is
	for i := range of {
		if f.step(ctx) != nil {
			f.out.cut = true
			return
		}
		if st, project := f.mountedFile(unix.AT_FDCWD, f.proc+"/1/root", &of[i]); st != nil {
			f.count(st, project)
		}
	}
}

// isHosts reports whether the host has a file mounted, too. Then it is not that pod's that sees all
// of the host's mounts, as one does that watches the node, but whose volume it is of, if any's. The
// file may have lost its name since the host's mounts were read, so for one that is not among them
// they are read anew, once in a look.
func (f *Finder) isHosts(m *mounts.Mount, st *unix.Statx_t) bool {
	if f.amongHosts(m, st) {
		return true
	}
	if f.again {
		return false
	}
	f.again = true
	f.readOverlays()
	return f.amongHosts(m, st)
}

func (f *Finder) amongHosts(m *mounts.Mount, st *unix.Statx_t) bool {
	hosts := f.hosts // which a look at one may read anew
	for i := range hosts {
		if h := &hosts[i]; h.Device == m.Device && h.Root == m.Root {
			if its, _ := f.mountedFile(unix.AT_FDCWD, f.proc+"/1/root", h); its != nil && its.Ino == st.Ino {
				return true
			}
		}
	}
	return false
}
