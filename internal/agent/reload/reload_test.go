package reload

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"jettison/internal/base/filetest"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const own = "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n"

// fixture is a reloaded configuration with its log.
type fixture struct {
	*Part
	t    *testing.T
	dir  string
	path string
	asks chan os.Signal
	log  *bytes.Buffer
	node string // error of fits; empty: the node can use it
}

// start starts to reload a file, and waits for the first read.
func start(t *testing.T, path string) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: filepath.Dir(path), path: path, asks: make(chan os.Signal, 1), log: &bytes.Buffer{}}
	running, err := config.Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	f.Part = NewPart(time.Now(), running, logthrottle.New(slog.New(slog.NewTextHandler(f.log, nil))))
	stop := f.Start(Options{Signals: f.asks, Find: func(ctx context.Context) (*config.Loaded, error) { return config.Load(ctx, path) }})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	if next := f.next(); next != nil || f.log.Len() > 0 || f.State().Reloads != 0 {
		t.Fatalf("first read = %+v, log %s; want no change", next, f.log)
	}
	return f
}

// next waits for the next read configuration, and passes it to the Part.
func (f *fixture) next() *config.Loaded {
	f.t.Helper()
	select {
	case r := <-f.Results():
		f.log.Reset()
		return f.OnResult(&r, func(l *config.Loaded) ([]error, error) {
			if f.node != "" {
				return nil, errors.New(f.node)
			}
			return []error{errors.New("a warning")}, nil
		})
	case <-time.After(30 * time.Second):
		f.t.Fatal("no configuration read within 30 s")
	}
	return nil
}

func (f *fixture) memory(l *config.Loaded, want string) {
	f.t.Helper()
	if l == nil || l.EvictionHard["memory.available"] != want {
		f.t.Fatalf("configuration = %+v, want memory.available %s; log %s", l, want, f.log)
	}
}

func (f *fixture) logged(want string) {
	f.t.Helper()
	if !strings.Contains(f.log.String(), want) {
		f.t.Errorf("log = %s\nwant %s", f.log, want)
	}
}

// A changed or replaced file and a signal cause a reload. An invalid configuration, or one that the
// node cannot use, is not applied, and reported in log and State.
func TestChangedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	filetest.Write(t, path, own)
	f := start(t, path)
	filetest.Write(t, path, own+"evictionHard: {memory.available: 1Gi}\nsocket: /b\n")
	f.memory(f.next(), "1Gi")
	f.logged(`msg="configuration reloaded" config=` + path + " changed=[evictionHard]\n")
	f.logged(`msg="configuration change needs a restart" fields=socket`)
	f.logged("a warning")
	if s := f.State(); s.Reloads != 1 || s.Failed != 0 || s.Error != "" || strings.Join(s.NextStart, " ") != "socket" || s.From != path {
		t.Errorf("state after a change = %+v, want one reload, next start socket", s)
	}

	filetest.Write(t, path+".new", own+"evictionHard: {memory.available: 2Gi}\n")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	f.memory(f.next(), "2Gi")
	if s := f.State(); s.Reloads != 2 || s.NextStart != nil {
		t.Errorf("state after a replaced file = %+v, want two reloads, no next start", s)
	}

	filetest.Write(t, path, own+"evictionHrad: {}\n")
	if next := f.next(); next != nil {
		t.Errorf("configuration applied from an invalid file: %+v", next)
	}
	const invalid = `:3: unknown field \"evictionHrad\"`
	f.logged(`level=ERROR msg="configuration reload failed" error="config ` + path + invalid)
	if s := f.State(); s.Failed != 1 || !strings.Contains(s.Error, "evictionHrad") || s.Reloads != 2 {
		t.Errorf("state after an invalid file = %+v, want one failure with its error", s)
	}

	filetest.Write(t, path, own+"evictionHard: {memory.available: 2Gi}\n")
	if next := f.next(); next != nil {
		t.Errorf("configuration applied without a change: %+v", next)
	}
	f.logged("configuration reloaded")
	if s := f.State(); s.Error != "" || s.Failed != 1 {
		t.Errorf("state after the correction = %+v, want no error, one failure", s)
	}

	f.asks <- syscall.SIGHUP
	if next := f.next(); next != nil {
		t.Errorf("configuration applied after a signal without a change: %+v", next)
	}
	f.logged("changed=[]")

	f.node = "more than the node has"
	filetest.Write(t, path, own+"evictionHard: {memory.available: 9Gi}\n")
	if next := f.next(); next != nil {
		t.Errorf("configuration applied that the node cannot use: %+v", next)
	}
	f.logged("more than the node has")
	f.node = ""

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if next := f.next(); next != nil {
		t.Errorf("configuration applied from a missing file: %+v", next)
	}
	f.logged("configuration reload failed")
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, path, own+"evictionHard: {memory.available: 3Gi}\n")
	f.memory(f.next(), "3Gi")
}

// A ConfigMap's volume changes by a swapped link, through which the file's own link leads.
func TestConfigMapVolume(t *testing.T) {
	dir := t.TempDir()
	filetest.Write(t, filepath.Join(dir, "..1/c.yaml"), own)
	filetest.Write(t, filepath.Join(dir, "..2/c.yaml"), own+"evictionHard: {memory.available: 1Gi}\n")
	filetest.Write(t, filepath.Join(dir, "..3/c.yaml"), own+"evictionHard: {memory.available: 2Gi}\n")
	path := filepath.Join(dir, "c.yaml")
	if err := errors.Join(os.Symlink("..1", filepath.Join(dir, "..data")), os.Symlink("..data/c.yaml", path)); err != nil {
		t.Fatal(err)
	}
	f := start(t, path)
	for at, want := range map[string]string{"..2": "1Gi", "..3": "2Gi"} {
		if err := errors.Join(os.Symlink(at, filepath.Join(dir, "..tmp")), os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
		f.memory(f.next(), want)
	}
}

// Other changes in a watched directory cause no read. A file that did not exist is read when it is
// created.
func TestOnlyWatchedFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	files, reads := []string{filepath.Join(dir, "a"), filepath.Join(dir, "d")}, 0
	filetest.Write(t, files[0], own)
	r := Start(Options{
		Running: &config.Loaded{Config: config.Default(), Kind: config.KindAgent, Files: files}, Log: slog.New(slog.DiscardHandler),
		Find: func(context.Context) (*config.Loaded, error) {
			mu.Lock()
			defer mu.Unlock()
			reads++
			return &config.Loaded{Config: config.Default(), Kind: config.KindAgent, Files: files}, nil
		},
	})
	<-r.Results()
	count := func() int { mu.Lock(); defer mu.Unlock(); return reads }
	for _, name := range []string{"x", "y", "z"} {
		filetest.Write(t, filepath.Join(dir, name), "x")
	}
	filetest.Write(t, filepath.Join(dir, "d/10.conf"), "x") // a directory, and a file in it
	<-r.Results()
	if n := count(); n < 2 || n > 3 { // creating the directory and the file may be two changes
		t.Errorf("configuration read %d times, want 2 or 3", n)
	}
	if err := r.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
}

// Close ends a Reloader whose results are not received, or whose read does not end.
func TestClose(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		began := make(chan struct{})
		r := Start(Options{
			Running: &config.Loaded{Config: config.Default(), Files: []string{"/none"}}, Log: slog.New(slog.DiscardHandler),
			Find: func(ctx context.Context) (*config.Loaded, error) {
				close(began)
				if hangs {
					<-ctx.Done()
				}
				return nil, errors.New("nothing")
			},
		})
		<-began
		if err := r.Close(time.Minute); err != nil {
			t.Error(err)
		}
	}
}
