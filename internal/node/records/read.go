package records

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"jettison/api"

	"golang.org/x/sys/unix"

	"jettison/internal/base/atomicfile"
)

// readBytes is how much of the end of a file is read: twice what the agent lets it become.
const readBytes = 2 * maxBytes

// List is what a file of records holds.
type List struct {
	Records  []api.Record // each once, as it was written last, in the order in which evictions began
	Warnings []string     // what could not be read, one line each
	Foreign  int          // lines that are no records, where none is one
}

// Read reads the end of a file of records. What is corrupt is skipped and counted. An error: the
// file cannot be read, with os.ErrNotExist for one that is not there.
func Read(path string) (*List, error) { return readTail(path, readBytes) }

func readTail(path string, most int64) (*List, error) {
	f, err := atomicfile.Open(path, os.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-most)
	list, err := parse(io.NewSectionReader(f, from, info.Size()-from), from > 0)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return list, nil
}

// parse reads records line by line. cut: the text begins somewhere in the file, perhaps within a
// line.
func parse(r io.Reader, cut bool) (*List, error) {
	p := parser{at: map[string]int{}, within: cut}
	err := lines(r, p.line)
	if over := len(p.list.Records) - maxRecords; over > 0 {
		p.list.Records = slices.Delete(p.list.Records, 0, over)
	}
	warn := func(yes bool, format string, args ...any) {
		if yes {
			p.list.Warnings = append(p.list.Warnings, fmt.Sprintf(format, args...))
		}
	}
	if !p.known {
		p.list.Foreign = p.corrupt
	}
	warn(cut, "only the end of the file was read, it is larger than it should be")
	warn(p.corrupt > 0, "%d lines are no records and were skipped", p.corrupt)
	warn(p.torn, "the last line is not whole and was skipped: it is being written, or the agent died while it wrote")
	warn(p.newer > 0, "%d records are of a later version of jettison: what it does not know is not shown", p.newer)
	return &p.list, err
}

// parser makes a List of lines.
type parser struct {
	list           List
	at             map[string]int // index + 1 in list.Records, by ID
	within         bool           // the next line most likely is the end of one
	torn           bool           // the last line is not whole
	corrupt, newer int            // lines
	known          bool           // one line at least is a record
}

func (p *parser) line(l line) {
	if p.within {
		p.within = false
		return
	}
	if len(l.text) == 0 && !l.long && !l.torn {
		return
	}
	rec, ok := decode(l)
	p.known = p.known || ok
	switch {
	case !ok && l.torn:
		p.torn = true
	case !ok:
		p.corrupt++
	case rec.Outcome == api.OutcomeLost: // it stands for others
	default:
		if rec.Version > Version {
			p.newer++
		}
		p.add(rec)
	}
}

// add adds a record, or puts it in the place of an earlier line of the same eviction.
func (p *parser) add(rec api.Record) {
	if i := p.at[rec.ID]; i > 0 {
		p.list.Records[i-1] = rec
		return
	}
	p.list.Records = append(p.list.Records, rec)
	p.at[rec.ID] = len(p.list.Records)
	if len(p.list.Records) >= 2*maxRecords { // lines that no agent wrote
		p.list.Records = slices.Delete(p.list.Records, 0, maxRecords)
		clear(p.at)
		for i := range p.list.Records {
			p.at[p.list.Records[i].ID] = i + 1
		}
	}
}

// decode makes a record of a line.
func decode(l line) (r api.Record, ok bool) {
	if l.long || json.Unmarshal(l.text, &r) != nil || r.Version < 1 || !ValidID(r.ID) {
		return api.Record{}, false
	}
	bound(&r)
	return r, true
}

// ValidID tells what can be the ID of a record: it is compared, and typed by people.
func ValidID(id string) bool {
	return id != "" && len(id) <= 64 &&
		!strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' })
}

// line of a file, valid until the next one.
type line struct {
	at   int64  // where it begins
	text []byte // without its end; nil of one that is too long
	long bool
	torn bool // the file ends before it does
}

// lines reads lines of any length in bounded memory.
func lines(r io.Reader, each func(line)) error {
	b := bufio.NewReaderSize(r, maxLine)
	var at int64
	for {
		l := line{at: at}
		text, err := b.ReadSlice('\n')
		at += int64(len(text))
		for errors.Is(err, bufio.ErrBufferFull) {
			l.long = true
			text, err = b.ReadSlice('\n')
			at += int64(len(text))
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		ended := len(text) > 0 && text[len(text)-1] == '\n'
		if ended {
			text = text[:len(text)-1]
		}
		if l.torn = !ended; !l.long {
			l.text = text
		}
		if ended || l.long || len(text) > 0 {
			each(l)
		}
		if err != nil {
			return nil
		}
	}
}

// Path is where the records of a state directory lie.
func Path(dir string) string { return filepath.Join(dir, File) }
