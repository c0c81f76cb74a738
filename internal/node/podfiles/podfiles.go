// Package podfiles deletes the files of pods that are gone: logs and emptyDir volumes. What pods
// left may be hostile: nothing outside a pod's own directories is ever deleted. No symbolic link is
// followed, no mount crossed, and no path is resolved twice: everything happens relative to open
// directories.
//
// os.Root.RemoveAll would not do: it goes into what is mounted inside (Go 1.26 os/root_openat.go),
// keeps one descriptor a level, and reads a directory from its start after each thousand names.
//
//	podfiles.go         Remover: logs and volumes of a pod
//	aside.go          what is removed has a name of its own, and one remover
//	tree.go           a directory with all that is in it
//	mount.go          memory-backed volumes are unmounted first
//	memoryvolumes.go  what a dead pod left in memory: such volumes, /dev/shm
//	link.go           lists of the host's directories, links that lead nowhere, one container's log
//	dirent.go         records of getdents64(2)
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

// Remover deletes files of pods on one node. Its callers see to it that the pods are gone. Calls
// for different pods may run at the same time.
type Remover struct {
	Host *read.HostRoot
	// the kubelet's: "/var/lib/kubelet". Itself, and on the way to it, symbolic links and mounts are
	// the administrator's
	RootDir    string
	PodLogsDir string // "/var/log/pods"; as RootDir
	// Proc is the folder of a process in the host's mount namespace: "/proc/1" where this program
	// lives in another. It is where mounts are looked up and taken away. Empty: this program's own.
	Proc string
	sync func(fd int) error // tests: instead of fsync(2)
}

// Result is what was deleted. It is right beside an error, too.
type Result struct {
	Entries uint64 // files, directories and the like
	// Bytes that were allocated to them (st_blocks), without files that have another name left, and
	// without directories. What a process still holds open is not free yet.
	Bytes uint64
	// Left names what is not this package's to delete, below the pod's directory:
	// "volumes/kubernetes.io~csi". At most 16.
	Left []string
}

const maxLeft = 16

func (r *Result) leave(name string) {
	if len(r.Left) < maxLeft {
		r.Left = append(r.Left, name)
	}
}

// Logs deletes a pod's log directory, NAMESPACE_NAME_UID (kubelet
// pkg/kubelet/kuberuntime/helpers.go BuildPodLogsDirectory). One that does not exist is no error.
// What cannot be deleted is left and named in the error, and the rest goes on; an error also is
// what is there and no directory. It ends early with ctx.
func (r *Remover) Logs(ctx context.Context, pod stats.PodReference) (Result, error) {
	for _, part := range []string{pod.Namespace, pod.Name, pod.UID} {
		// With another "_" the name could be that of another pod.
		if err := checkName(part); err != nil || strings.Contains(part, "_") {
			return Result{}, fmt.Errorf(
				"remove logs of pod %.64q: %.64q cannot be part of a log directory's name", pod.UID, part)
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

// Volumes deletes a pod's emptyDir volumes below rootDir/pods/UID, and what else is plainly without
// worth there without the pod: etc-hosts, termination messages (containers/), the emptyDir plugin's
// own notes, and directories that are empty. Volumes of other plugins are left alone, for they may
// hold what a tenant wants back; Left names them. A memory-backed emptyDir is unmounted first;
// anything else that is mounted stays, with what is below it, and is named in the error. A pod
// without files is no error. It ends early with ctx.
//
// The pod may come back at any time: as soon as back, which asks for that, has an error, nothing of
// its new life is touched, and that error is returned. What it had before goes nevertheless as far
// as it was put aside. nil: it does not come back.
func (r *Remover) Volumes(ctx context.Context, uid string, back func() error) (Result, error) {
	if back == nil {
		back = func() error { return nil }
	}
	return r.volumes(ctx, uid, func(t *tree, fd int) error { return r.putAside(ctx, t, fd, back) },
		back)
}

// volumes deletes what is ours in a pod's directory. What the pod has now goes only as long as
// first, which is asked before anything is done, and back have no error, which is returned then.
func (r *Remover) volumes(ctx context.Context, uid string, first func(t *tree, volumes int) error,
	back func() error) (Result, error) {
	if checkName(uid) != nil {
		return Result{}, fmt.Errorf("remove volumes of a pod: %.64q cannot be a UID", uid)
	}
	t := newTree(r.pods())
	base, err := r.Host.Dir(t.path)
	if err == nil {
		defer unix.Close(base)
		err = r.removeVolumes(ctx, t, base, uid, first, back)
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, errThere) {
		err = nil
	}
	if err = t.error(err); err != nil {
		err = fmt.Errorf("remove volumes of pod %s: %w", uid, err)
	}
	return t.result, err
}

// pods is where the directories of pods are.
func (r *Remover) pods() string { return strings.TrimRight(r.RootDir, "/") + "/pods" }

// removeVolumes: an error ends it; what is only left is noted in the tree. What takes long comes
// last but for the directories themselves, and with it the name by which a pass sees that the
// removal has not ended.
func (r *Remover) removeVolumes(ctx context.Context, t *tree, base int, uid string,
	first func(*tree, int) error, back func() error) error {
	pod := t.openDir(base, uid)
	if pod < 0 {
		return nil
	}
	defer unix.Close(pod)
	up := t.into(uid)
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
		up := t.into(volumes)
		err := r.removeAside(ctx, t, fd)
		up()
		if err != nil {
			return err
		}
	}
	if stays == nil { // what is empty may be a volume that it was just given
		stays = back()
	}
	if stays != nil {
		return stays
	}
	return t.removeDirs(base, pod, fd, uid)
}

// removeNotes removes the small things: what the emptyDir plugin has noted, termination messages,
// etc-hosts.
func (t *tree) removeNotes(ctx context.Context, pod int) error {
	if fd := t.openDir(pod, plugins); fd >= 0 {
		up := t.into(plugins)
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

// removeDirs removes what is empty by now of a pod's directory, and with it that itself.
func (t *tree) removeDirs(base, pod, fd int, uid string) error {
	if fd >= 0 {
		up := t.into(volumes)
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

// checkName says whether a name is one entry of a directory.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > 255 ||
		strings.ContainsAny(name, "/\x00") {
		return errors.New("not a file name")
	}
	return nil
}
