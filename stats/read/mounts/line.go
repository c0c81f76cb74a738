package mounts

import (
	"bufio"
	"bytes"
	"hash"
	"hash/fnv"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/seqfile"
)

// Mount is what a line of a mountinfo says (proc_pid_mountinfo(5)).
type Mount struct {
	ID      uint64
	Device  uint64
	Point   string // where, from the root of who has it mounted
	Unnamed bool   // what is mounted has no name any more
	Root    uint64 // a hash of the path it had on its device, where it is unnamed
}

// maxMountPoint is how much of a mount point is kept. What is mounted may lie as far down as who
// may write to its directory likes, so that nothing of its path is kept but whether the file has it
// still.
const maxMountPoint = 1 << 20

// rootDeleted is what the kernel writes behind the path of a mounted file without a name: no name
// has a slash (v6.12 fs/d_path.c dentry_path).
const rootDeleted = "//deleted"

// eachMount visits the lines of a mountinfo. whole: there are no others.
func eachMount(file io.Reader, visit func(*Mount)) (whole bool) {
	limit := &io.LimitedReader{R: file, N: maxMounts}
	in := bufio.NewReaderSize(limit, 16<<10)
	for line := (mountLine{root: fnv.New64a()}); ; {
		piece, err := in.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull {
			return err == io.EOF && limit.N > 0
		}
		line.add(piece)
		if err != nil {
			continue // the line goes on
		}
		if m, ok := line.parse(); ok {
			visit(&m)
		}
		line.root.Reset()
		line = mountLine{root: line.root}
	}
}

// mountLine is what is needed of a line that comes in pieces:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
type mountLine struct {
	field  int
	fields [5][]byte // of that of the root the end
	root   hash.Hash64
}

func (l *mountLine) add(piece []byte) {
	for len(piece) > 0 && l.field < len(l.fields) {
		part, rest, ended := bytes.Cut(piece, []byte(" "))
		text := &l.fields[l.field]
		if l.field == 3 {
			_, _ = l.root.Write(part) // it cannot fail
			*text = append(*text, part[max(0, len(part)-len(rootDeleted)):]...)
			*text = (*text)[max(0, len(*text)-len(rootDeleted)):]
		} else {
			*text = append(*text, part[:min(len(part), maxMountPoint-len(*text))]...)
		}
		if piece = rest; ended {
			l.field++
		}
	}
}

func (l *mountLine) parse() (m Mount, ok bool) {
	major, minor, _ := strings.Cut(string(l.fields[2]), ":")
	id, err := strconv.ParseUint(string(l.fields[0]), 10, 64)
	x, err1 := strconv.ParseUint(major, 10, 32)
	y, err2 := strconv.ParseUint(minor, 10, 32)
	if l.field < len(l.fields) || err != nil || err1 != nil || err2 != nil {
		return m, false
	}
	m = Mount{ID: id, Device: unix.Mkdev(uint32(x), uint32(y)),
		Unnamed: string(l.fields[3]) == rootDeleted}
	if m.Unnamed {
		m.Point, m.Root = unescape.Replace(string(l.fields[4])), l.root.Sum64()
	}
	return m, true
}

// maxUnnamed is how many of them are kept of one mountinfo.
const maxUnnamed = 1 << 16

// Unnamed are those of files without a name in a mountinfo, and how many mounts there are in all.
// whole: there are no others.
func Unnamed(file io.Reader) (found []Mount, all int, whole bool) {
	room := 4 * maxMountPoint
	left := false
	whole = eachMount(file, func(m *Mount) {
		if all++; !m.Unnamed {
			return
		}
		if room -= len(m.Point); room < 0 || len(found) >= maxUnnamed {
			left = true
			return
		}
		found = append(found, *m)
	})
	return found, all, whole && !left
}

// Devices is what a thread has mounted: devices by the ids of mounts.
func Devices(fds int) map[uint64]uint64 {
	found := map[uint64]uint64{}
	file, err := seqfile.OpenAt(fds, "../mountinfo")
	if err != nil {
		return found
	}
	defer file.Close()
	eachMount(file, func(m *Mount) { found[m.ID] = m.Device })
	return found
}
