// Package manifests reads static pod manifests as the kubelet does, again and again, and finds the
// pods that the runtime made of them.
//
//	reader.go  Reader: looks at the files in a goroutine of its own
//	once.go    Once: for a command that looks once
//	decode.go  a manifest's text as a pod
//	bind.go    Bind, Match: manifests and the runtime's pods
package manifests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"jettison/internal/base/atomicfile"
	"jettison/internal/base/podjson"
	"jettison/internal/base/retry"
)

// Bounds. The kubelet takes 10 MiB a file (pkg/kubelet/config/common.go maxConfigLength) and any
// number; an API server would take no pod above 1.5 MiB.
const (
	maxFile   = 1 << 20
	maxFiles  = 1000
	maxNames  = 10 * maxFiles // of a directory
	maxMemory = 8 << 20       // bytes of all manifests, as podjson.Size has them
)

// period between two looks, the kubelet's default (fileCheckFrequency).
const period = 20 * time.Second

// closeLimit is how long Close waits for a file system that hangs.
const closeLimit = 2 * time.Second

// unsure is how long after a change a file may change again without its times telling: they are as
// coarse as the kernel's tick.
const unsure = time.Second

// Options of Start.
type Options struct {
	Path string // staticPodPath: a directory or a file
	// Changed gets the manifests that are valid, trimmed, whenever they are others than before; first
	// with an empty list of none at all. It must not change them.
	Changed func([]*v1.Pod)
	// Report gets what is wrong with the path or a file, once until it is another thing or the file
	// was right in between.
	Report func(error)
}

// Reader looks at the path in a goroutine of its own, which calls Changed and Report.
type Reader struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Start starts a Reader. Close it.
func Start(o Options) *Reader { return startEvery(o, period) }

func startEvery(o Options, every time.Duration) *Reader {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reader{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		run(ctx, o, every)
	}()
	return r
}

// Close ends the reader. It returns an error where the file system hangs and the goroutine with it.
func (r *Reader) Close() error {
	r.cancel()
	if !retry.Await(r.done, closeLimit) {
		return errors.New("static pod manifests: the file system does not answer")
	}
	return nil
}

func run(ctx context.Context, o Options, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	s := newScanner(o.Path)
	var last []*v1.Pod
	for first := true; ; first = false {
		pods, errs := s.scan(ctx, time.Now())
		if ctx.Err() != nil {
			return
		}
		for _, err := range errs {
			o.Report(err)
		}
		if first || !slices.Equal(pods, last) {
			last = pods
			o.Changed(pods)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// scanner remembers what it has read.
type scanner struct {
	path  string
	files map[string]*file  // by path
	said  map[string]string // errors that were returned, by path
	last  []*v1.Pod         // what the last scan found
}

// file is one manifest as last read. The pod stays the same pointer as long as the file says the
// same.
type file struct {
	stamp stamp
	sure  bool // a change since would have changed the stamp
	pod   *v1.Pod
	err   error // what is wrong with it; with a pod: what is doubtful
}

// stamp tells one state of a file from another.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func newScanner(path string) *scanner {
	return &scanner{path: path, files: map[string]*file{}, said: map[string]string{}}
}

// scan looks at the path and returns the manifests in the order of the files' names, and the errors
// that are new. Files that did not change are not read again. As in the kubelet
// (pkg/kubelet/config/file.go listConfig), a wrong file of a directory is one manifest less, while
// a path that cannot be read, or is itself a wrong file, changes nothing; one that does not exist
// holds none.
func (s *scanner) scan(ctx context.Context, now time.Time) (pods []*v1.Pod, news []error) {
	wrong := map[string]error{}
	names, err := s.names()
	if err != nil {
		wrong[s.path] = err
	}
	if err != nil && names == nil && !errors.Is(err, errNone) {
		return s.last, s.news(wrong)
	}
	files, memory := map[string]*file{}, 0
	at := map[string]int{} // by namespace and name: index in pods
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, nil
		}
		f := s.read(name, now)
		if f == nil { // gone meanwhile
			continue
		}
		files[name] = f
		if f.err != nil {
			wrong[name] = f.err
		}
		if f.pod == nil && name == s.path {
			s.files = files
			return s.last, s.news(wrong)
		}
		if f.pod == nil {
			continue
		}
		if memory += podjson.Size(f.pod); memory > maxMemory {
			wrong[name] = fmt.Errorf(
				"the manifests before it take the %d MiB of memory that there are for them: ignored",
				maxMemory>>20)
			continue
		}
		key := f.pod.Namespace + "/" + f.pod.Name
		if i, twice := at[key]; twice { // the last one counts in the kubelet's store too
			pods[i] = f.pod
			wrong[name] = fmt.Errorf("pod %s is in a file before it too: this one counts", key)
			continue
		}
		at[key] = len(pods)
		pods = append(pods, f.pod)
	}
	s.files, s.last = files, pods
	return pods, s.news(wrong)
}

var errNone = errors.New("does not exist: no static pods")

// news are the errors that were not said before, by path.
func (s *scanner) news(wrong map[string]error) (news []error) {
	said := map[string]string{}
	for path, err := range wrong {
		said[path] = err.Error()
		if s.said[path] != err.Error() {
			news = append(news, fmt.Errorf("static pod manifest %s: %w", path, err))
		}
	}
	s.said = said
	slices.SortFunc(news, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return news
}

// names are the files to read, sorted. With an error there may be some all the same.
func (s *scanner) names() ([]string, error) {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errNone
	case err != nil:
		return nil, cause(err)
	case !info.IsDir():
		return []string{s.path}, nil
	}
	d, err := os.Open(s.path)
	if err != nil {
		return nil, cause(err)
	}
	defer d.Close()
	all, err := d.Readdirnames(maxNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, cause(err)
	}
	full := len(all) == maxNames
	all = slices.DeleteFunc(all, func(name string) bool { return strings.HasPrefix(name, ".") })
	slices.Sort(all)
	if full || len(all) > maxFiles {
		err = fmt.Errorf("more than %d files: the rest is ignored", maxFiles)
		all = all[:min(len(all), maxFiles)]
	} else {
		err = nil
	}
	for i, name := range all {
		all[i] = filepath.Join(s.path, name)
	}
	return all, err
}

// read reads a file, unless it is as it was. nil: it is gone.
func (s *scanner) read(path string, now time.Time) *file {
	old := s.files[path]
	st, err := stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return &file{err: cause(err)}
	case old != nil && old.sure && old.stamp == st:
		return old
	}
	text, st, err := readFile(path)
	f := &file{stamp: st, err: err}
	changed := max(st.mtime.Nano(), st.ctime.Nano())
	f.sure = err == nil && now.UnixNano()-changed > int64(unsure)
	if err != nil {
		return f
	}
	var doubt error
	if f.pod, doubt, f.err = parse(text); f.err == nil && doubt != nil {
		f.err = fmt.Errorf("taken as the kubelet does, but %w", doubt)
	}
	if old != nil && old.pod != nil && f.pod != nil && reflect.DeepEqual(old.pod, f.pod) {
		f.pod = old.pod // it says what it said
	}
	return f
}

func stat(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := regular(st.Mode); err != nil {
		return stamp{}, err
	}
	return stampOf(&st), nil
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
}

// regular refuses what is no file: opening a pipe may block, and opening a device may do anything.
func regular(mode uint32) error {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return errors.New("is a directory: not looked into")
	}
	return errors.New("is neither a directory nor a file")
}

// readFile reads a regular file of bounded size. It may have become another thing since it was
// looked at, so it is opened in a way that does not wait, and looked at again.
func readFile(path string) ([]byte, stamp, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, stamp{}, cause(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, stamp{}, err
	}
	if err := regular(st.Mode); err != nil {
		return nil, stamp{}, err
	}
	text, err := atomicfile.ReadAll(f, maxFile)
	if large := atomicfile.TooLarge(0); errors.As(err, &large) {
		return nil, stampOf(&st), fmt.Errorf("is %w", large)
	}
	if err != nil {
		return nil, stamp{}, cause(err)
	}
	return text, stampOf(&st), nil
}

// cause is an error without its path, which the message has already.
func cause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return fmt.Errorf("%s: %w", p.Op, p.Err)
	}
	return err
}
