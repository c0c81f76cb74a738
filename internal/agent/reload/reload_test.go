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

// fixture is a configuration that is read again, and what comes of it.
type fixture struct {
	*Part
	t    *testing.T
	dir  string
	path string
	asks chan os.Signal
	log  *bytes.Buffer
	node string // what the node cannot have: a field
}

// start starts reading the file again. Its first reading is over when start returns.
func start(t *testing.T, path string) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: filepath.Dir(path), path: path, asks: make(chan os.Signal, 1), log: &bytes.Buffer{}}
	running, err := config.Load(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	f.Part = NewPart(time.Now(), running, logthrottle.New(slog.New(slog.NewTextHandler(f.log, nil))))
	stop := f.Start(Options{Asks: f.asks, Find: func(ctx context.Context) (*config.Loaded, error) { return config.Load(ctx, path) }})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	if next := f.next(); next != nil || f.log.Len() > 0 || f.State().Reloads != 0 {
		t.Fatalf("the first reading is news: %+v, %s", next, f.log)
	}
	return f
}

// next waits for the next configuration that was read, and takes it.
func (f *fixture) next() *config.Loaded {
	f.t.Helper()
	select {
	case r := <-f.Results():
		f.log.Reset()
		return f.OnResult(&r, func(l *config.Loaded) ([]error, error) {
			if f.node != "" {
				return nil, errors.New(f.node)
			}
			return []error{errors.New("a doubt")}, nil
		})
	case <-time.After(30 * time.Second):
		f.t.Fatal("nothing was read")
	}
	return nil
}

func (f *fixture) memory(l *config.Loaded, want string) {
	f.t.Helper()
	if l == nil || l.EvictionHard["memory.available"] != want {
		f.t.Fatalf("%+v, want %s; %s", l, want, f.log)
	}
}

func (f *fixture) said(want string) {
	f.t.Helper()
	if !strings.Contains(f.log.String(), want) {
		f.t.Errorf("%s\nwant %s", f.log, want)
	}
}

// A file that is written, one that takes its place, and a signal have it read again; one that is wrong, or that this node cannot have,
// leaves what holds and is said in the log and the State.
func TestAFileThatChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	filetest.Write(t, path, own)
	f := start(t, path)
	filetest.Write(t, path, own+"evictionHard: {memory.available: 1Gi}\nsocket: /b\n")
	f.memory(f.next(), "1Gi")
	f.said(`msg="configuration reloaded" config=` + path + " changed=[evictionHard]\n")
	f.said(`msg="takes effect at the next start" fields=socket`)
	f.said("a doubt")
	if s := f.State(); s.Reloads != 1 || s.Failed != 0 || s.Error != "" || strings.Join(s.NextStart, " ") != "socket" || s.From != path {
		t.Errorf("%+v", s)
	}

	filetest.Write(t, path+".new", own+"evictionHard: {memory.available: 2Gi}\n")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	f.memory(f.next(), "2Gi")
	if s := f.State(); s.Reloads != 2 || s.NextStart != nil {
		t.Errorf("%+v", s)
	}

	filetest.Write(t, path, own+"evictionHrad: {}\n")
	if next := f.next(); next != nil {
		t.Errorf("%+v", next)
	}
	const wrong = `:3: unknown field \"evictionHrad\"`
	f.said(`level=ERROR msg="configuration not reloaded: what it was before holds" error="config ` + path + wrong)
	if s := f.State(); s.Failed != 1 || !strings.Contains(s.Error, "evictionHrad") || s.Reloads != 2 {
		t.Errorf("%+v", s)
	}

	filetest.Write(t, path, own+"evictionHard: {memory.available: 2Gi}\n")
	if next := f.next(); next != nil {
		t.Errorf("what held before: %+v", next)
	}
	f.said("configuration reloaded")
	if s := f.State(); s.Error != "" || s.Failed != 1 {
		t.Errorf("%+v", s)
	}

	f.asks <- syscall.SIGHUP
	if next := f.next(); next != nil {
		t.Errorf("nothing has changed: %+v", next)
	}
	f.said("changed=[]")

	f.node = "more than there is"
	filetest.Write(t, path, own+"evictionHard: {memory.available: 9Gi}\n")
	if next := f.next(); next != nil {
		t.Errorf("%+v", next)
	}
	f.said("more than there is")
	f.node = ""

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if next := f.next(); next != nil {
		t.Errorf("%+v", next)
	}
	f.said("configuration not reloaded")
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, path, own+"evictionHard: {memory.available: 3Gi}\n")
	f.memory(f.next(), "3Gi")
}

// A volume of a ConfigMap is changed by a link that is swapped, through which the file's own link leads.
func TestAConfigMap(t *testing.T) {
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

// What else happens in the folder of a file is none of its changes, and a file that does not exist yet is one when it comes.
func TestWhatIsReadWhen(t *testing.T) {
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
	filetest.Write(t, filepath.Join(dir, "d/10.conf"), "x") // a folder, and what is in it
	<-r.Results()
	if n := count(); n < 2 || n > 3 { // between its making and the file in it there may be time
		t.Errorf("%d", n)
	}
	if err := r.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
}

// A Reloader whose results nobody takes, or whose configuration does not come, can be ended.
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
