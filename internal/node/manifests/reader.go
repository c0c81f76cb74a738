// Package manifests reads static pod manifests periodically, as the kubelet does, and matches them
// with the runtime's pods.
//
//	reader.go  Reader: reads the files on its own goroutine
//	once.go    Once: reads the files once, for commands
//	decode.go  converts a manifest's text to a pod
//	bind.go    Bind, Match: match manifests with the runtime's pods
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

// Limits. The kubelet accepts 10 MiB per file (pkg/kubelet/config/common.go maxConfigLength) and
// any number of files; an API server accepts no pod above 1.5 MiB.
const (
	maxFile   = 1 << 20
	maxFiles  = 1000
	maxNames  = 10 * maxFiles // of a directory
	maxMemory = 8 << 20       // bytes of all manifests, by podjson.Size
)

// period is the time between two scans, the kubelet's default (fileCheckFrequency).
const period = 20 * time.Second

// closeLimit bounds Close if the file system hangs.
const closeLimit = 2 * time.Second

// unsureAfter is the time after a change in which a file may change again without new timestamps, which
// have the resolution of the kernel's tick.
const unsureAfter = time.Second

// Options are the options of Start.
type Options struct {
	Path string // staticPodPath: a directory or a file
	// Changed receives the valid manifests, trimmed, whenever they change, and after the first
	// scan, even if it found none. It must not modify them.
	Changed func([]*v1.Pod)
	// Report receives an error of the path or a file, once until it changes or the file was valid
	// in between.
	Report func(error)
}

// Reader scans the path on its own goroutine, which calls Changed and Report.
type Reader struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Start starts a Reader. The caller must call Close.
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

// Close ends the reader. It returns an error if the file system hangs and blocks the goroutine.
func (r *Reader) Close() error {
	r.cancel()
	if !retry.Await(r.done, closeLimit) {
		return errors.New("static pod manifests: file system not responding")
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

// scanner scans the path and keeps the results.
type scanner struct {
	path     string
	files    map[string]*file  // by path
	reported map[string]string // errors that were reported, by path
	last     []*v1.Pod         // result of the last scan
}

// file is a manifest as last read. The pointer pod stays the same while the content does.
type file struct {
	stamp stamp
	final bool // any later change has a different stamp
	pod   *v1.Pod
	err   error // why the file is invalid; with a pod: a warning
}

// stamp identifies a state of a file.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func newScanner(path string) *scanner {
	return &scanner{path: path, files: map[string]*file{}, reported: map[string]string{}}
}

// scan returns the manifests sorted by file name, and the new errors. It does not read unchanged
// files again. As in the kubelet (pkg/kubelet/config/file.go listConfig), an invalid file in a
// directory is skipped. A path that is unreadable, or is itself an invalid file, changes nothing; a
// path that does not exist has no manifests.
func (s *scanner) scan(ctx context.Context, now time.Time) (pods []*v1.Pod, news []error) {
	wrong := map[string]error{}
	names, err := s.names()
	if err != nil {
		wrong[s.path] = err
	}
	if err != nil && names == nil && !errors.Is(err, errNotExist) {
		return s.last, s.newErrors(wrong)
	}
	files, memory := map[string]*file{}, 0
	at := map[string]int{} // by namespace and name: index in pods
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, nil
		}
		f := s.read(name, now)
		if f == nil { // removed meanwhile
			continue
		}
		files[name] = f
		if f.err != nil {
			wrong[name] = f.err
		}
		if f.pod == nil && name == s.path {
			s.files = files
			return s.last, s.newErrors(wrong)
		}
		if f.pod == nil {
			continue
		}
		if memory += podjson.Size(f.pod); memory > maxMemory {
			wrong[name] = fmt.Errorf(
				"ignored: the manifests before it use the limit of %dMi of memory", maxMemory>>20)
			continue
		}
		key := f.pod.Namespace + "/" + f.pod.Name
		if i, twice := at[key]; twice { // the kubelet's store also uses the last one
			pods[i] = f.pod
			wrong[name] = fmt.Errorf("pod %s is also in an earlier file: this one is used", key)
			continue
		}
		at[key] = len(pods)
		pods = append(pods, f.pod)
	}
	s.files, s.last = files, pods
	return pods, s.newErrors(wrong)
}

var errNotExist = errors.New("does not exist: no static pods")

// newErrors returns the errors that were not reported before, by path.
func (s *scanner) newErrors(wrong map[string]error) (news []error) {
	reported := map[string]string{}
	for path, err := range wrong {
		reported[path] = err.Error()
		if s.reported[path] != err.Error() {
			news = append(news, fmt.Errorf("static pod manifest %s: %w", path, err))
		}
	}
	s.reported = reported
	slices.SortFunc(news, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return news
}

// names returns the files to read, sorted. It may return files together with an error.
func (s *scanner) names() ([]string, error) {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errNotExist
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
		err = fmt.Errorf("more than %d files: ignoring the rest", maxFiles)
		all = all[:min(len(all), maxFiles)]
	} else {
		err = nil
	}
	for i, name := range all {
		all[i] = filepath.Join(s.path, name)
	}
	return all, err
}

// read reads a file unless it is unchanged. nil: the file does not exist.
func (s *scanner) read(path string, now time.Time) *file {
	old := s.files[path]
	st, err := stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return &file{err: cause(err)}
	case old != nil && old.final && old.stamp == st:
		return old
	}
	text, st, err := readFile(path)
	f := &file{stamp: st, err: err}
	changed := max(st.mtime.Nano(), st.ctime.Nano())
	f.final = err == nil && now.UnixNano()-changed > int64(unsureAfter)
	if err != nil {
		return f
	}
	var doubt error
	if f.pod, doubt, f.err = parse(text); f.err == nil && doubt != nil {
		f.err = fmt.Errorf("accepted as by the kubelet, but %w", doubt)
	}
	if old != nil && old.pod != nil && f.pod != nil && reflect.DeepEqual(old.pod, f.pod) {
		f.pod = old.pod // unchanged
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

// regular rejects other things than files: opening a pipe may block, and opening a device may have
// any effect.
func regular(mode uint32) error {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return errors.New("is a directory: not read")
	}
	return errors.New("is neither a directory nor a file")
}

// readFile reads a regular file of limited size. The file may have been replaced since the stat, so
// it is opened without blocking and checked again.
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

// cause removes the path from an error, because the message already contains it.
func cause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return fmt.Errorf("%s: %w", p.Op, p.Err)
	}
	return err
}
