package remove

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmount takes away the memory-backed emptyDir that is mounted on an entry of a directory: a whole tmpfs or hugetlbfs
// (kubelet pkg/volume/emptydir/empty_dir.go) that is mounted nowhere else and has nothing mounted inside. Anything else is an
// error, and stays.
func (r *Remover) unmount(dir int, name string) error {
	proc := r.Proc
	if proc == "" {
		proc = "/proc/thread-self"
	}
	result := make(chan error)
	go func() {
		// The thread gets a working directory and maybe a namespace of its own, and ends with the goroutine.
		runtime.LockOSThread()
		result <- func() error {
			fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("%w: %w", errMounted, err)
			}
			defer unix.Close(fd)
			if err := ownMount(fd, proc+"/mountinfo"); err != nil {
				return fmt.Errorf("%w: %w", errMounted, err)
			}
			if err := detach(dir, name, r.Proc); err != nil {
				return fmt.Errorf("unmount: %w", err)
			}
			return nil
		}()
	}()
	return <-result
}

// detach unmounts an entry of a directory in the mount namespace of a process. It changes the calling thread for good.
func detach(dir int, name, proc string) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // the working directory, and setns asks for it
		return fmt.Errorf("leave the program's working directory: %w", err)
	}
	if proc != "" { // a mount can only be taken away from inside its namespace (v6.12 fs/namespace.c can_umount)
		ns, err := unix.Open(proc+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s/ns/mnt: %w", proc, err)
		}
		defer unix.Close(ns)
		if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter %s/ns/mnt: %w", proc, err)
		}
	}
	if err := unix.Fchdir(dir); err != nil {
		return err
	}
	return unix.Unmount("./"+name, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
}

// ownMount says why the mount whose root directory this is may not be an emptyDir's own.
func ownMount(fd int, mountinfo string) error {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st); err != nil {
		return err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return errOld
	}
	f, err := os.Open(mountinfo)
	if err != nil {
		return err
	}
	defer f.Close()
	mounts, err := parseMountinfo(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", mountinfo, err)
	}
	own, ok := mounts[st.Mnt_id]
	if !ok {
		return fmt.Errorf("mount %d is not in %s", st.Mnt_id, mountinfo)
	}
	if own.kind != "tmpfs" && own.kind != "hugetlbfs" || own.root != "/" {
		return fmt.Errorf("%s of type %s, which no emptyDir is", own.root, own.kind)
	}
	for _, m := range mounts {
		switch {
		case m.parent == own.id && m.id != own.id && m.point != own.point: // the same point: one more on top of it
			return fmt.Errorf("%q is mounted inside", m.point)
		case m.device == own.device && m.point != own.point:
			return fmt.Errorf("it is %q, too", m.point)
		}
	}
	return nil
}

// mount is a line of mountinfo.
type mount struct {
	id, parent          uint64
	device, root, point string // point and root with the kernel's escapes (\040)
	kind                string
}

// parseMountinfo reads /proc/PID/mountinfo (proc(5)): "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw".
func parseMountinfo(from io.Reader) (map[uint64]mount, error) {
	out := map[uint64]mount{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		sep := 6
		for sep < len(f) && f[sep] != "-" {
			sep++
		}
		if sep+1 >= len(f) {
			return nil, fmt.Errorf("line %.100q: want ID PARENT DEVICE ROOT POINT OPTIONS - TYPE", lines.Text())
		}
		id, err := strconv.ParseUint(f[0], 10, 64)
		parent, err2 := strconv.ParseUint(f[1], 10, 64)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("line %.100q: ids are numbers", lines.Text())
		}
		out[id] = mount{id: id, parent: parent, device: f[2], root: f[3], point: f[4], kind: f[sep+1]}
	}
	return out, lines.Err()
}
