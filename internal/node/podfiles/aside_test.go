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

func there() bool { return false }

// put returns the path of a file of a volume after the volume was moved aside.
func put(path string) string {
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
	free = sync.OnceFunc(func() { // at any of its paths
		must(t, unix.IoctlSetPointerInt(int(open.Fd()), unix.FS_IOC_SETFLAGS, 0), open.Close())
	})
	t.Cleanup(free)
	return free
}

// Two remove what was put aside, and not all of it goes: it does not get its name again, under which the pod that is back would take it
// for its own while the other one removes on.
func TestTwoRemoveWhatWasPutAside(t *testing.T) {
	for range 4 {
		b := newBox(t, t.TempDir())
		must(t, os.RemoveAll(b.volume), os.Remove(filepath.Dir(b.volume)))
		put := filepath.Dir(put(b.volume))
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
				_, err := b.RemoveMovedVolumes(t.Context(), ref.UID, there)
				ended <- err
			}()
		}
		var errs []error
		for file := b.volume + "/d0/new"; len(errs) < 2; {
			select {
			case err := <-ended:
				errs = append(errs, err)
			default:
				if _, err := os.Stat(b.volume); err == nil { // the pod is back, and finds its volume
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
			t.Errorf("PutAside = %v, %v, want the pod; removal errors %v", uids, err, errs)
		}
	}
}

// What fails stays aside until it goes, and keeps no later volume.
func TestAStuckFileKeepsNoLaterVolume(t *testing.T) {
	b := newBox(t, t.TempDir())
	put := filepath.Dir(put(b.volume))
	free := []func(){stuck(t, put+"/data/stuck")}
	here := func() error { return nil }
	for range 2 { // each life leaves one
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
	if _, err := b.RemoveMovedVolumes(t.Context(), ref.UID, there); err != nil {
		t.Error(err)
	}
	if uids, err := b.PodsWithMovedVolumes(); err != nil || uids != nil {
		t.Errorf("PutAside after the removal = %v, %v, want none", uids, err)
	}
}

// Where volumes cannot be renamed, as on a btrfs that is full, they are removed under their own name, unless the pod is back.
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

// Whatever else holds one, in this process or another, it is not removed twice at a time.
func TestOneRemoverAtATime(t *testing.T) {
	b := newBox(t, t.TempDir())
	must(t, b.MoveVolumesAside(ref.UID, func() error { return nil }))
	put := filepath.Dir(put(b.volume))
	other, err := os.Open(put)
	must(t, err, unix.Flock(int(other.Fd()), unix.LOCK_EX))
	if _, err := b.RemoveMovedVolumes(t.Context(), ref.UID, there); !errors.Is(err, ErrInProgress) {
		t.Errorf("Aside during another removal = %v, want ErrInProgress", err)
	}
	if _, err := os.Stat(put + "/data/file"); err != nil {
		t.Error(err)
	}
	must(t, other.Close())
	if _, err := b.RemoveMovedVolumes(t.Context(), ref.UID, there); err != nil {
		t.Error(err)
	}
	gone(t, put)
}

// The pod is back while its volumes are renamed: they have their name again, also after a power cut, before it writes to them.
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
		gone(t, b.volume, filepath.Dir(put(b.volume)))
		if _, err := os.Stat(b.pod + "/containers/app/1234"); (err == nil) == isGone {
			t.Errorf("gone %v: its termination message: %v", isGone, err)
		}
		if _, err := os.Stat(b.pod); (err == nil) == isGone {
			t.Errorf("pod gone %v: stat of its directory = %v", isGone, err)
		}
		b.check("ended")
	}
}
