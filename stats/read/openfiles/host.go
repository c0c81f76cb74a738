package openfiles

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/seqfile"
	"jettison/stats/read/mounts"
)

// overlay returns the upper directory of the overlay on a device; empty: no overlay. A container
// may have started since the mounts were read. For an anonymous device (v6.12 fs/super.c
// get_anon_bdev) that is not in the table, overlay therefore reads the mounts again, once per look.
func (f *Finder) overlay(device uint64) string {
	dir := f.overlays[device]
	if dir == "" && unix.Major(device) == 0 && f.mounted.Before(f.lookStart) {
		f.readOverlays()
		dir = f.overlays[device]
	}
	return dir
}

// readOverlays reads the host's overlays, and its mounts of files without a name.
func (f *Finder) readOverlays() {
	name := f.proc + "/1/mountinfo"
	f.mounted, f.hostMounts = time.Now(), nil
	overlays, err := mounts.Overlays(name)
	f.overlays, f.mountsIncomplete = overlays, err != nil
	if file, err := seqfile.Open(name); err == nil {
		var whole bool
		f.hostMounts, _, whole = mounts.Unnamed(file)
		file.Close()
		f.mountsIncomplete = f.mountsIncomplete || !whole
	} else {
		f.mountsIncomplete = true
	}
}

// countHostMounts counts files that the kubelet has mounted for the pod's volumes, even if no
// process of the pod is alive (pkg/volume/util/subpath subpath_linux.go:
// pods/UID/volume-subpaths/VOLUME/CONTAINER/INDEX).
func (f *Finder) countHostMounts(ctx context.Context) {
	var of []mounts.Mount
	for i := range f.hostMounts {
		if strings.Contains(f.hostMounts[i].Point, "/pods/"+f.uid+"/volume-subpaths/") {
			of = append(of, f.hostMounts[i])
		}
	}
	if len(of) == 0 {
		return
	}
	f.pid, f.member = 1, true // membership does not matter: the path names the pod
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

// mountedOnHost reports whether the host has the file mounted, too. Such a file belongs to the pod
// that has it as a volume, if any, and not to a pod that sees all of the host's mounts, such as a
// node monitor. The file may have lost its name since the host's mounts were read. If it is not
// among them, mountedOnHost reads the mounts again, once per look.
func (f *Finder) mountedOnHost(m *mounts.Mount, st *unix.Statx_t) bool {
	if f.inHostMounts(m, st) {
		return true
	}
	if f.mountsReread {
		return false
	}
	f.mountsReread = true
	f.readOverlays()
	return f.inHostMounts(m, st)
}

func (f *Finder) inHostMounts(m *mounts.Mount, st *unix.Statx_t) bool {
	hosts := f.hostMounts // mountedFile may read f.hostMounts again
	for i := range hosts {
		if h := &hosts[i]; h.Device == m.Device && h.Root == m.Root {
			if its, _ := f.mountedFile(unix.AT_FDCWD, f.proc+"/1/root", h); its != nil && its.Ino == st.Ino {
				return true
			}
		}
	}
	return false
}
