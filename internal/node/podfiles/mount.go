package podfiles

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"jettison/seqfile"
)

// unmount unmounts the memory-backed emptyDir on an entry of a directory: a whole tmpfs or
// hugetlbfs (kubelet pkg/volume/emptydir/empty_dir.go) that is mounted nowhere else and contains no
// other mount. Any other mount stays and is an error.
func (r *Remover) unmount(dir int, name string) error {
	proc := r.Proc
	if proc == "" {
		proc = "/proc/thread-self"
	}
	result := make(chan error)
	go func() {
		// The thread gets its own working directory and possibly namespace, and ends with the goroutine.
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

// detach unmounts an entry of a directory in the mount namespace of a process. It changes the
// calling thread permanently.
func detach(dir int, name, proc string) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // own working directory, which setns requires
		return fmt.Errorf("unshare the working directory: %w", err)
	}
	// the kernel unmounts only inside the mount's own namespace (v6.12 fs/namespace.c can_umount)
	if proc != "" {
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

// ownMount returns an error unless fd is the root of a mount that can be an emptyDir's own. name is
// the path of a mountinfo file that lists the mount.
func ownMount(fd int, name string) error {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID,
		&st); err != nil {
		return err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return errOldKernel
	}
	mounts, err := readMounts(name)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(mounts, func(m *mountinfo.Info) bool {
		return m.ID >= 0 && uint64(m.ID) == st.Mnt_id
	})
	if at < 0 {
		return fmt.Errorf("mount %d is not in %s", st.Mnt_id, name)
	}
	own := mounts[at]
	if own.FSType != "tmpfs" && own.FSType != "hugetlbfs" || own.Root != "/" {
		return fmt.Errorf("mount of %s with type %s is not an emptyDir", own.Root, own.FSType)
	}
	for _, m := range mounts {
		switch {
		// the same mount point means another mount on top of it
		case m.Parent == own.ID && m.ID != own.ID && m.Mountpoint != own.Mountpoint:
			return fmt.Errorf("%q is mounted inside", m.Mountpoint)
		case m.Major == own.Major && m.Minor == own.Minor && m.Mountpoint != own.Mountpoint:
			return fmt.Errorf("%q is a mount of the same file system", m.Mountpoint)
		}
	}
	return nil
}

// readMounts reads a mountinfo file (proc_pid_mountinfo(5)). A malformed or unreadable line is an
// error.
func readMounts(name string) ([]*mountinfo.Info, error) {
	f, err := seqfile.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mounts, err := mountinfo.GetMountsFromReader(seqfile.Mounts(f), nil)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return mounts, nil
}
