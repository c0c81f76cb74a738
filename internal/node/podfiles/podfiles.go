// Package podfiles deletes the files of pods that are gone: logs and emptyDir volumes. Leftovers
// may be hostile, so nothing outside a pod's own directories is ever deleted. The package follows
// no symbolic link, crosses no mount, and resolves no path twice: it works relative to open
// directories.
//
// os.Root.RemoveAll is not suitable: it enters mounts (Go 1.26 os/root_openat.go), keeps one
// descriptor per level, and rereads a directory from its start after each thousand names.
//
//	podfiles.go       Remover: logs and volumes of a pod
//	aside.go          moves volumes aside before their removal, one remover at a time
//	tree.go           removes a directory tree
//	mount.go          unmounts memory-backed volumes
//	memoryvolumes.go  memory that a dead pod left: tmpfs volumes, /dev/shm
//	link.go           lists host directories, dangling links, logs of one container
//	dirent.go         parses getdents64(2) records
package podfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/stats"
	"jettison/stats/read"
)

// Remover deletes files of pods on one node. The callers ensure that the pods are gone. Calls for
// different pods may run concurrently.
type Remover struct {
	Host *read.HostRoot
	// RootDir is the kubelet's root directory: "/var/lib/kubelet". Symbolic links and mounts on its
	// path belong to the administrator and are followed.
	RootDir    string
	PodLogsDir string // "/var/log/pods"; links and mounts as in RootDir
	// Proc is the /proc directory of a process in the host's mount namespace: "/proc/1" if the agent
	// runs in another one. Mounts are read and unmounted there. Empty: the agent's own namespace.
	Proc string
	sync func(fd int) error // tests: replaces fsync(2)
}

// Result describes the deleted files. It is valid together with an error too.
type Result struct {
	Entries uint64 // files, directories and other entries
	// Bytes allocated to the deleted files (st_blocks), without directories and without files that
	// have other links. Files that a process still has open are included, although not free yet.
	Bytes uint64
	// Left names entries below the pod's directory that this package does not delete:
	// "volumes/kubernetes.io~csi". At most 16.
	Left []string
}

const maxLeft = 16

func (r *Result) addLeft(name string) {
	if len(r.Left) < maxLeft {
		r.Left = append(r.Left, name)
	}
}

// Logs deletes a pod's log directory, NAMESPACE_NAME_UID (kubelet
// pkg/kubelet/kuberuntime/helpers.go BuildPodLogsDirectory). A missing directory is no error. An
// entry that cannot be deleted is named in the error, and the rest is still deleted. An entry of
// that name that is not a directory is an error too. Logs returns early if ctx ends.
func (r *Remover) Logs(ctx context.Context, pod stats.PodReference) (Result, error) {
	for _, part := range []string{pod.Namespace, pod.Name, pod.UID} {
		// With an additional "_" the name could be that of another pod.
		if err := checkName(part); err != nil || strings.Contains(part, "_") {
			return Result{}, fmt.Errorf(
				"remove logs of pod %.64q: %.64q is invalid in the name of a log directory", pod.UID, part)
		}
	}
	t := newTree(r.PodLogsDir)
	base, err := r.Host.Dir(r.PodLogsDir)
	if err == nil {
		defer unix.Close(base)
		err = t.remove(ctx, base, pod.Namespace+"_"+pod.Name+"_"+pod.UID)
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err = t.error(err); err != nil {
		err = fmt.Errorf("remove logs of pod %s: %w", pod.UID, err)
	}
	return t.result, err
}

// Directories below rootDir/pods/UID (kubelet pkg/kubelet/kubelet_getters.go,
// pkg/kubelet/config/defaults.go).
const (
	emptyDirPlugin = "kubernetes.io~empty-dir"
	volumes        = "volumes"
	plugins        = "plugins"
	containers     = "containers" // termination messages
)

// Volumes deletes a pod's emptyDir volumes below rootDir/pods/UID, and files that are worthless
// without the pod: etc-hosts, termination messages (containers/), notes of the emptyDir plugin, and
// empty directories. Volumes of other plugins stay, because they may hold data that a tenant needs;
// Left names them. A memory-backed emptyDir is unmounted first. Any other mount stays with its
// content, and is named in the error. A pod without files is no error. Volumes returns early if ctx
// ends.
//
// The pod may be restarted at any time. As soon as back returns an error, Volumes leaves the files
// of the restarted pod untouched and returns that error; it still deletes the former volumes that
// were moved aside. nil: the pod is not restarted.
func (r *Remover) Volumes(ctx context.Context, uid string, back func() error) (Result, error) {
	if back == nil {
		back = func() error { return nil }
	}
	return r.volumes(ctx, uid, func(t *tree, fd int) error { return r.moveOrRemove(ctx, t, fd, back) },
		back)
}

// volumes deletes a pod's volumes and notes. It calls first before anything else. It deletes
// current files only while first and back return nil, and otherwise returns their error.
func (r *Remover) volumes(ctx context.Context, uid string, first func(t *tree, volumes int) error,
	back func() error) (Result, error) {
	if checkName(uid) != nil {
		return Result{}, fmt.Errorf("remove volumes of a pod: %.64q is not a valid UID", uid)
	}
	t := newTree(r.pods())
	base, err := r.Host.Dir(t.path)
	if err == nil {
		defer unix.Close(base)
		err = r.removeVolumes(ctx, t, base, uid, first, back)
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, errPodExists) {
		err = nil
	}
	if err = t.error(err); err != nil {
		err = fmt.Errorf("remove volumes of pod %s: %w", uid, err)
	}
	return t.result, err
}

// pods returns the directory with the pods' directories.
func (r *Remover) pods() string { return strings.TrimRight(r.RootDir, "/") + "/pods" }

// removeVolumes does the work of volumes. It returns errors that end it; entries that stay are
// recorded in the tree. The volumes moved aside, which take long, come last except for the
// directories, because a garbage collection pass detects an unfinished removal by their name.
func (r *Remover) removeVolumes(ctx context.Context, t *tree, base int, uid string,
	first func(*tree, int) error, back func() error) error {
	pod := t.openDir(base, uid)
	if pod < 0 {
		return nil
	}
	defer unix.Close(pod)
	up := t.enter(uid)
	defer up()
	fd := t.openDir(pod, volumes)
	if fd >= 0 {
		defer unix.Close(fd)
	}
	stays := first(t, fd)
	if stays == nil {
		stays = t.removeNotes(ctx, pod)
	}
	if fd >= 0 {
		up := t.enter(volumes)
		err := r.removeAside(ctx, t, fd)
		up()
		if err != nil {
			return err
		}
	}
	if stays == nil { // an empty directory may be a new volume of the restarted pod
		stays = back()
	}
	if stays != nil {
		return stays
	}
	return t.removeDirs(base, pod, fd, uid)
}

// removeNotes removes small files: notes of the emptyDir plugin, termination messages, etc-hosts.
func (t *tree) removeNotes(ctx context.Context, pod int) error {
	if fd := t.openDir(pod, plugins); fd >= 0 {
		up := t.enter(plugins)
		err := t.remove(ctx, fd, emptyDirPlugin)
		if err == nil {
			err = t.removeEmpty(fd, plugins)
		}
		up()
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	if err := t.remove(ctx, pod, containers); err != nil {
		return err
	}
	return t.removeFile(pod, "etc-hosts")
}

// removeDirs removes the empty directories of a pod, and the pod's directory itself if it is empty.
func (t *tree) removeDirs(base, pod, fd int, uid string) error {
	if fd >= 0 {
		up := t.enter(volumes)
		err := t.removeEmpty(fd, volumes)
		up()
		if err != nil {
			return err
		}
	}
	if err := t.removeEmpty(pod, ""); err != nil {
		return err
	}
	t.path = strings.TrimSuffix(t.path, "/"+uid)
	return t.removeDir(base, uid)
}

// checkName returns an error unless name is the name of a directory entry.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > 255 ||
		strings.ContainsAny(name, "/\x00") {
		return errors.New("not a file name")
	}
	return nil
}
