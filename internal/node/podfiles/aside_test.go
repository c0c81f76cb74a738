package podfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func neverGone() bool { return false }

// movedPath returns the path of a file of a volume after the volume was moved aside.
func movedPath(path string) string {
	return strings.Replace(path, "volumes/"+emptyDirPlugin+"/", "volumes/"+aside+"/", 1)
}

// stuck writes a file that nothing removes until free is called.
func stuck(t *testing.T, file string) (free func()) {
	t.Helper()
	write(t, file)
	if err := setFlags(file, unix.STATX_ATTR_IMMUTABLE); err != nil {
		t.Skipf("this file system has no immutable files: %v", err)
	}
	open, err := os.Open(file)
	must(t, err)
	free = sync.OnceFunc(func() { // the descriptor works at any path of the file
		must(t, unix.IoctlSetPointerInt(int(open.Fd()), unix.FS_IOC_SETFLAGS, 0), open.Close())
	})
	t.Cleanup(free)
	return free
}

// Two removals of the same moved volumes run concurrently, and one file cannot be removed. The
// volumes never get their original name back: a restarted pod would use them while the other
// removal continues.
func TestTwoRemoveWhatWasPutAside(t *testing.T) {
	for range 4 {
		b := newBox(t, t.TempDir())
		must(t, os.RemoveAll(b.volume), os.Remove(filepath.Dir(b.volume)))
		put := filepath.Dir(movedPath(b.volume))
		stuck(t, put+"/data/stuck")
		for i := range 20 {
			must(t, os.Mkdir(fmt.Sprintf("%s/data/d%d", put, i), 0o755))
			for k := range 400 {
				must(t, os.WriteFile(fmt.Sprintf("%s/data/d%d/f%d", put, i, k), nil, 0o600))
			}
		}
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := b.RemoveMovedVolumes(t.Context(), ref.UID, neverGone)
				ended <- err
			}()
		}
		var errs []error
		for file := b.volume + "/d0/new"; len(errs) < 2; {
			select {
			case err := <-ended:
				errs = append(errs, err)
			default:
				if _, err := os.Stat(b.volume); err == nil { // the restarted pod finds its volume
					must(t, os.MkdirAll(filepath.Dir(file), 0o755))
					must(t, os.WriteFile(file, nil, 0o600))
				}
			}
		}
		if _, err := os.Stat(b.volume); err == nil {
			_, err := os.Stat(b.volume + "/d0/new")
			t.Fatalf("it has its name again; what the pod has written since is there: %v", err)
		}
		if uids, err := b.PodsWithMovedVolumes(); err != nil || !slices.Equal(uids, []string{ref.UID}) {
			t.Errorf("PodsWithMovedVolumes = %v, %v, want the pod; removal errors %v", uids, err, errs)
		}
	}
}

// Volumes that cannot be removed stay aside until they can, and do not block the removal of later
// volumes.
func TestAStuckFileKeepsNoLaterVolume(t *testing.T) {
	b := newBox(t, t.TempDir())
	put := filepath.Dir(movedPath(b.volume))
	free := []func(){stuck(t, put+"/data/stuck")}
	here := func() error { return nil }
	for range 2 { // each life of the pod leaves one
		free = append(free, stuck(t, b.volume+"/stuck"))
		must(t, b.MoveVolumesAside(ref.UID, here))
		gone(t, b.volume)
	}
	write(t, b.volume+"/large")
	if _, err := b.Volumes(t.Context(), ref.UID, nil); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "(and 2 more)") {
		t.Errorf("Volumes with immutable files = %v, want EPERM and 2 more errors", err)
	}
	gone(t, b.volume)
	if left, err := filepath.Glob(b.pod + "/volumes/*/data/*"); err != nil || len(left) != 3 {
		t.Errorf("files after the removal = %q, want the 3 immutable ones", left)
	}
	for _, f := range free {
		f()
	}
	if _, err := b.RemoveMovedVolumes(t.Context(), ref.UID, neverGone); err != nil {
		t.Error(err)
	}
	if uids, err := b.PodsWithMovedVolumes(); err != nil || uids != nil {
		t.Errorf("PodsWithMovedVolumes after the removal = %v, %v, want none", uids, err)
	}
}

// Volumes that cannot be renamed, for example on a full btrfs, are removed in place, unless the pod
// was restarted.
func TestVolumesThatCannotBeRenamed(t *testing.T) {
	back := errors.New("it is back")
	for _, answer := range []error{nil, back} {
		b := newBox(t, t.TempDir())
		volumes := b.pod + "/volumes"
		if err := setFlags(volumes, unix.STATX_ATTR_IMMUTABLE); err != nil {
			t.Skipf("this file system has no immutable directories: %v", err)
		}
		t.Cleanup(func() { must(t, setFlags(volumes, 0)) })
		for range 2 {
			got, err := b.Volumes(t.Context(), ref.UID, func() error { return answer })
			if answer != nil && (!errors.Is(err, back) || got.Entries > 0) || answer == nil && !errors.Is(err, unix.EPERM) {
				t.Errorf("Volumes = %+v, %v, want the error of back without removals, or EPERM", got, err)
			}
			if _, err := os.Stat(b.volume); (err == nil) != (answer != nil) {
				t.Errorf("answer %v: the volume is there: %v", answer, err)
			}
		}
	}
}

// While another removal, in this process or another, holds the lock, the volumes are not removed.
func TestOneRemoverAtATime(t *testing.T) {
	b := newBox(t, t.TempDir())
	must(t, b.MoveVolumesAside(ref.UID, func() error { return nil }))
	put := filepath.Dir(movedPath(b.volume))
	other, err := os.Open(put)
	must(t, err, unix.Flock(int(other.Fd()), unix.LOCK_EX))
	if _, err := b.RemoveMovedVolumes(t.Context(), ref.UID, neverGone); !errors.Is(err, ErrInProgress) {
		t.Errorf("RemoveMovedVolumes during another removal = %v, want ErrInProgress", err)
	}
	if _, err := os.Stat(put + "/data/file"); err != nil {
		t.Error(err)
	}
	must(t, other.Close())
	if _, err := b.RemoveMovedVolumes(t.Context(), ref.UID, neverGone); err != nil {
		t.Error(err)
	}
	gone(t, put)
}

// The pod is restarted while its volumes are renamed: they get their original name back, also after
// a power loss, before the pod writes to them.
func TestTheOldNameIsSynced(t *testing.T) {
	b := newBox(t, t.TempDir())
	back, asked, synced := errors.New("it is back"), 0, false
	b.sync = func(fd int) error {
		_, err := os.Stat(b.volume + "/file")
		synced = err == nil
		return unix.Fsync(fd)
	}
	err := b.MoveVolumesAside(ref.UID, func() error {
		if asked++; asked == 2 {
			return back
		}
		return nil
	})
	if !errors.Is(err, back) || !synced {
		t.Errorf("%v; its name was synced: %v", err, synced)
	}
}

// An interrupted removal is finished: with the volumes moved aside, the pod's notes and directory are removed too, unless the pod exists.
func TestAnInterruptedRemovalIsBroughtToItsEnd(t *testing.T) {
	for _, isGone := range []bool{true, false} {
		b := newBox(t, t.TempDir())
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		_, err := b.Volumes(ctx, ref.UID, func() error {
			if asked++; asked == 2 {
				cancel()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := b.RemoveMovedVolumes(t.Context(), ref.UID, func() bool { return isGone }); err != nil {
			t.Error(err)
		}
		gone(t, b.volume, filepath.Dir(movedPath(b.volume)))
		if _, err := os.Stat(b.pod + "/containers/app/1234"); (err == nil) == isGone {
			t.Errorf("gone %v: its termination message: %v", isGone, err)
		}
		if _, err := os.Stat(b.pod); (err == nil) == isGone {
			t.Errorf("pod gone %v: stat of its directory = %v", isGone, err)
		}
		b.check("ended")
	}
}
