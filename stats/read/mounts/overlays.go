// Package mounts parses mountinfo files (proc_pid_mountinfo(5)).
//
//	overlays.go upper directories of overlays, by container and by device
//	line.go     lines of any length: devices by mount, and mounts of files without a name
package mounts

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"jettison/seqfile"
)

// Every is the minimum time between two reads of the host's mounts.
// Callers reuse the last result meanwhile.
const Every = 3 * time.Second

// maxMounts is the maximum size of a mountinfo file in bytes. UpperDirs rejects a larger file;
// other functions read only the beginning.
const maxMounts = 16 << 20

// parseUpperDirs finds the upper directories of overlays in a mountinfo file (proc_pid_mountinfo(5)).
// The key of each is its mount point, and also the container ID if the overlay is mounted at
// ".../ID/rootfs", as containerd does
// (/run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/rootfs). It leaves out keys with
// contradictory mounts, and relative upper directories, because their base is unknown. One is known:
// containers/storage mounts "HOME/LAYER/merged" from HOME if the options exceed a page
// (go.podman.io/storage drivers/overlay/overlay.go, get).
func parseUpperDirs(mounts io.Reader) (map[string]string, error) {
	found, disputed := map[string]string{}, map[string]bool{}
	add := func(key, upper string) {
		had := found[key]
		if disputed[key] = disputed[key] || had != "" && had != upper || !path.IsAbs(upper); disputed[key] {
			delete(found, key)
		} else {
			found[key] = upper
		}
	}
	_, err := mountinfo.GetMountsFromReader(seqfile.Mounts(mounts), func(m *mountinfo.Info) (skip,
		stop bool) {
		if m.FSType != "overlay" {
			return true, false
		}
		upper := upperOption(m.VFSOptions)
		layer, ok := strings.CutSuffix(m.Mountpoint, "/merged")
		if ok && upper == path.Base(layer)+"/diff" {
			upper = layer + "/diff"
		}
		add(m.Mountpoint, upper)
		parent, ok := strings.CutSuffix(m.Mountpoint, "/rootfs")
		if slash := strings.LastIndexByte(parent, '/'); ok && slash >= 0 && parent[slash+1:] != "" {
			add(parent[slash+1:], upper)
		}
		return true, false
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// UpperDirs applies parseUpperDirs to a file of at most maxMounts bytes.
func UpperDirs(name string) (map[string]string, error) {
	f, err := seqfile.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	within := &io.LimitedReader{R: f, N: maxMounts + 1}
	uppers, err := parseUpperDirs(within)
	if within.N == 0 {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxMounts)
	}
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	return uppers, nil
}

// upperOption returns the upper directory among an overlay's options; empty: none.
func upperOption(options string) string {
	for option := range strings.SplitSeq(options, ",") {
		if upper, ok := strings.CutPrefix(option, "upperdir="); ok {
			return unescape.Replace(strings.Clone(upper)) // do not keep the line alive
		}
	}
	return ""
}

// unescape reverts the kernel's escaping of overlay options (fs/seq_file.c seq_show_option,
// fs/overlayfs ovl_show_options).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\072`,
	":", `\054`, ",", `\043`, "#")

// parseOverlays finds the upper directories of the overlays in a mountinfo, by device. It skips
// relative directories. With seqfile.ErrLong it returns the directories before the long line.
func parseOverlays(mounts io.Reader) (map[uint64]string, error) {
	found := map[uint64]string{}
	_, err := mountinfo.GetMountsFromReader(seqfile.Mounts(mounts), func(m *mountinfo.Info) (skip,
		stop bool) {
		if upper := upperOption(m.VFSOptions); m.FSType == "overlay" && strings.HasPrefix(upper, "/") &&
			m.Major >= 0 && m.Minor >= 0 {
			found[unix.Mkdev(uint32(m.Major), uint32(m.Minor))] = upper
		}
		return true, false
	})
	if err != nil && !errors.Is(err, seqfile.ErrLong) {
		return nil, err
	}
	return found, err
}

// Overlays applies parseOverlays to a file, up to maxMounts bytes of it.
func Overlays(name string) (map[uint64]string, error) {
	file, err := seqfile.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return parseOverlays(&io.LimitedReader{R: file, N: maxMounts})
}
