package podfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"jettison/stats"
)

// For any leftovers and names of a pod: nothing outside its directories is removed or changed, its emptyDirs and logs are removed, and
// volumes of other plugins are not.
func TestNothingElseEverGoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		root, err := os.MkdirTemp(t.TempDir(), "")
		must(t, err)
		b := newBox(t, root)
		csi := filepath.Join(b.pod, "volumes/kubernetes.io~csi/pvc")
		tops := []string{b.volume, b.log, csi, filepath.Join(b.pod, "containers"), filepath.Join(b.pod, "plugins", emptyDirPlugin), filepath.Join(b.pod, "volumes", emptyDirPlugin)}
		dirs := append([]string(nil), tops...)
		must(t, os.MkdirAll(csi, 0o755))
		kept := 0
		for i := range rapid.IntRange(0, 40).Draw(rt, "entries") {
			dir := rapid.SampledFrom(dirs).Draw(rt, "in")
			path := filepath.Join(dir, fmt.Sprint(i, rapid.StringOfN(rapid.RuneFrom([]rune("a.-_\n ~*ä\\")), 0, 20, -1).Draw(rt, "name")))
			target := rapid.SampledFrom([]string{b.outside, b.neighbour, "..", "../..", "/", ".", csi, b.root, "../../../../../../outside/precious"}).Draw(rt, "to")
			switch rapid.IntRange(0, 5).Draw(rt, "kind") {
			case 0, 1:
				err = os.Mkdir(path, forRoot(os.FileMode(rapid.Uint32Range(0, 0o777).Draw(rt, "mode"))))
				dirs = append(dirs, path)
			case 2:
				err = os.WriteFile(path, make([]byte, rapid.IntRange(0, 9000).Draw(rt, "size")), 0)
			case 3:
				err = os.Symlink(target, path)
			case 4:
				err = os.Link(b.outside+"/precious", path)
			case 5:
				err = unix.Mkfifo(path, 0)
			}
			must(t, err)
		}
		kept = count(t, csi)
		// First the names of other pods: their removal affects neither this pod nor the others.
		for range 3 {
			uid := rapid.SampledFrom([]string{"u-", "u-1 ", "U-1", "u-1/", "./u-1", "../pods/u-1", "*", "", "..", "u-11"}).Draw(rt, "uid")
			_, _ = b.Volumes(t.Context(), uid, nil)
			_, _ = b.Logs(t.Context(), stats.PodReference{Namespace: "shop", Name: "web-0", UID: uid})
		}
		for _, top := range tops {
			if _, err := os.Stat(top); err != nil {
				rt.Fatalf("another UID: %v", err)
			}
		}
		got, err := b.Volumes(t.Context(), ref.UID, nil)
		logs, err2 := b.Logs(t.Context(), ref)
		if err != nil || err2 != nil || len(got.Left) != 1 || logs.Left != nil {
			rt.Errorf("%+v, %v; %+v, %v", got, err, logs, err2)
		}
		gone(t, b.log, filepath.Dir(b.volume), b.pod+"/containers", b.pod+"/plugins", b.pod+"/etc-hosts")
		if n := count(t, csi); n != kept {
			rt.Errorf("%d of %d entries left in another plugin's volume", n, kept)
		}
		b.check("random")
		if t.Failed() {
			rt.Fatal("see above")
		}
		must(t, os.RemoveAll(root))
	})
}

// forRoot returns a mode that root can ignore, as the agent does. Other users always keep access to
// their own directories.
func forRoot(mode os.FileMode) os.FileMode {
	if os.Geteuid() != 0 {
		mode |= 0o700
	}
	return mode
}

func count(t testing.TB, dir string) (n int) {
	must(t, filepath.WalkDir(dir, func(string, os.DirEntry, error) error { n++; return nil }))
	return n
}
