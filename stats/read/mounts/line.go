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

// Mount holds the parsed fields of a mountinfo line (proc_pid_mountinfo(5)).
type Mount struct {
	ID      uint64
	Device  uint64
	Point   string // mount point, from the root of the process
	Unnamed bool   // the mounted file has no name any more
	Root    uint64 // hash of its former path on its device, if unnamed
}

// maxMountPoint is the number of bytes of a mount point that are kept. The path of the mounted file
// may have any length, because a tenant chooses its depth. Of that path only a hash is kept, and
// whether it ends in rootDeleted.
const maxMountPoint = 1 << 20

// rootDeleted is the suffix that the kernel appends to the path of a mounted file without a
// name: no name contains a slash (v6.12 fs/d_path.c dentry_path).
const rootDeleted = "//deleted"

// eachMount visits the lines of a mountinfo file. whole: all lines were visited.
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
			continue // the line continues
		}
		if m, ok := line.parse(); ok {
			visit(&m)
		}
		line.root.Reset()
		line = mountLine{root: line.root}
	}
}

// mountLine collects the needed fields of a line that is read in pieces:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
type mountLine struct {
	field  int
	fields [5][]byte // only the end of the root field
	root   hash.Hash64
}

func (l *mountLine) add(piece []byte) {
	for len(piece) > 0 && l.field < len(l.fields) {
		part, rest, ended := bytes.Cut(piece, []byte(" "))
		text := &l.fields[l.field]
		if l.field == 3 {
			_, _ = l.root.Write(part) // never fails
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

// maxUnnamed is the maximum number of mounts of files without a name that Unnamed returns.
const maxUnnamed = 1 << 16

// Unnamed returns the mounts of files without a name in a mountinfo file, and the total number of
// mounts. whole: no mount was left out.
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

// Devices returns the devices of a thread's mounts by mount ID.
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
