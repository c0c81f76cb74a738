package stats

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrMalformed: a file of /proc does not have the shape this package knows.
var ErrMalformed = errors.New("malformed")

// MemInfo holds the lines of /proc/meminfo that the agent uses, in bytes.
type MemInfo struct {
	Total     Opt[uint64] // MemTotal
	Available Opt[uint64] // MemAvailable (since v3.14)
}

// ParseMemInfo reads /proc/meminfo: lines of "Name:   123 kB" (fs/proc/meminfo.c). Unknown lines are skipped, a known one
// without a number of kB is malformed, a known one that is missing is absent. It does not allocate.
func ParseMemInfo(b []byte, out *MemInfo) error {
	*out = MemInfo{}
	for line := range bytes.Lines(b) {
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			continue
		}
		var dst *Opt[uint64]
		switch string(line[:colon]) {
		case "MemTotal":
			dst = &out.Total
		case "MemAvailable":
			dst = &out.Available
		default:
			continue
		}
		kib, err := kibibytes(line[colon+1:])
		if err != nil {
			return err
		}
		*dst = Some(kib << 10)
	}
	return nil
}

func kibibytes(b []byte) (uint64, error) {
	number, ok := bytes.CutSuffix(bytes.TrimSpace(b), []byte(" kB"))
	var v uint64
	for _, c := range number {
		d := uint64(c - '0')
		ok = ok && d <= 9 && v <= (math.MaxUint64>>10-d)/10
		v = v*10 + d
	}
	if !ok || len(number) == 0 {
		return 0, fmt.Errorf("%w: %.40q is not a number of kB", ErrMalformed, b)
	}
	return v, nil
}

// Proc is a mounted proc file system, with the descriptors of the files read again and again. Close it. It is used by one
// goroutine at a time.
type Proc struct {
	mount    string
	meminfo  int
	zoneinfo []byte // buffer, grown to the file's size
}

// OpenProc opens the proc file system mounted at a directory, or a recorded one; empty means /proc.
func OpenProc(mount string) (*Proc, error) {
	if mount == "" {
		mount = "/proc"
	}
	name := filepath.Join(mount, "meminfo")
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &Proc{mount: mount, meminfo: fd}, nil
}

// Close gives the descriptors back.
func (p *Proc) Close() error { return unix.Close(p.meminfo) }

// MemInfo reads meminfo into out; buf is scratch space of at least 8 KiB.
func (p *Proc) MemInfo(buf []byte, out *MemInfo) error {
	n, err := unix.Pread(p.meminfo, buf, 0)
	if err != nil {
		return fmt.Errorf("read %s/meminfo: %w", p.mount, err)
	}
	if err := ParseMemInfo(buf[:n], out); err != nil {
		return fmt.Errorf("parse %s/meminfo: %w", p.mount, err)
	}
	return nil
}

// OOMScoreAdj reads a process's oom_score_adj, -1000 to 1000 (proc_pid_oom_score_adj(5)).
func (p *Proc) OOMScoreAdj(pid int) (int64, error) {
	name := filepath.Join(p.mount, strconv.Itoa(pid), "oom_score_adj")
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(fd)
	var buf [16]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	v, err := strconv.ParseInt(string(bytes.TrimSpace(buf[:n])), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", name, err)
	}
	return v, nil
}

// SelfCgroup is the path of this process's cgroup below the root of the hierarchy, without a leading slash, from
// self/cgroup ("0::/path", cgroups(7)). In a cgroup namespace of its own the path is relative to that namespace's root and
// says nothing about the host's: then ok is false.
func (p *Proc) SelfCgroup() (path string, ok bool, err error) {
	name := filepath.Join(p.mount, "self", "cgroup")
	b, err := os.ReadFile(name)
	if err != nil {
		return "", false, err
	}
	for line := range bytes.Lines(b) {
		if rest, found := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::/")); found {
			return string(rest), len(rest) > 0 && !bytes.HasPrefix(rest, []byte("..")), nil
		}
	}
	return "", false, fmt.Errorf("parse %s: no cgroup v2 line", name)
}
