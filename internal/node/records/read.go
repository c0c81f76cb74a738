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

// readBytes bounds the part of a file that is read, from its end: twice the agent's limit.
const readBytes = 2 * maxBytes

// List is the content of a file of records.
type List struct {
	Records  []api.Record // the last version of each, in the order in which the evictions began
	Warnings []string     // problems of the file, one line each
	Foreign  int          // number of lines, if no line is a record
	// Lost is the newest gap mark: records up to its ID are missing, for the reason in its Error;
	// zero: none.
	Lost api.Record
}

// Read reads the end of a file of records. It skips and counts corrupt lines. It fails if the file
// cannot be read, with os.ErrNotExist if it does not exist.
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

// parse reads records line by line. cut means that the text may begin within a line.
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
	warn(cut, "the file is larger than the limit, only its end was read")
	warn(p.corrupt > 0, "skipped %d corrupt lines", p.corrupt)
	warn(p.torn, "skipped the last line, which is incomplete: it is being written, or the agent "+
		"died during the write")
	warn(p.newer > 0, "%d records were written by a later version of jettison: "+
		"unknown fields are not shown", p.newer)
	return &p.list, err
}

// parser builds a List from lines.
type parser struct {
	list           List
	at             map[string]int // index + 1 in list.Records, by ID
	within         bool           // the next line probably is the end of a line
	torn           bool           // the last line is incomplete
	corrupt, newer int            // numbers of lines
	known          bool           // at least one line is a record
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
	case rec.Outcome == api.OutcomeLost: // a gap mark
		if rec.ID > p.list.Lost.ID {
			p.list.Lost = rec
		}
	default:
		if rec.Version > Version {
			p.newer++
		}
		p.add(rec)
	}
}

// add adds a record, or replaces the one from an earlier line of the same eviction.
func (p *parser) add(rec api.Record) {
	if i := p.at[rec.ID]; i > 0 {
		p.list.Records[i-1] = rec
		return
	}
	p.list.Records = append(p.list.Records, rec)
	p.at[rec.ID] = len(p.list.Records)
	if len(p.list.Records) >= 2*maxRecords { // not written by an agent
		p.list.Records = slices.Delete(p.list.Records, 0, maxRecords)
		clear(p.at)
		for i := range p.list.Records {
			p.at[p.list.Records[i].ID] = i + 1
		}
	}
}

// decode parses the record of a line.
func decode(l line) (r api.Record, ok bool) {
	if l.long || json.Unmarshal(l.text, &r) != nil || r.Version < 1 || !ValidID(r.ID) {
		return api.Record{}, false
	}
	bound(&r)
	return r, true
}

// ValidID reports whether a text can be the ID of a record, which is compared and typed by users.
func ValidID(id string) bool {
	return id != "" && len(id) <= 64 &&
		!strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' })
}

// line is a line of a file, valid until the next one is read.
type line struct {
	at   int64  // offset in the file
	text []byte // without line break; nil if the line is too long
	long bool
	torn bool // the line has no line break: the file ends
}

// lines calls each for every line, of any length, in bounded memory.
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

// Path returns the path of the file of records in a state directory.
func Path(dir string) string { return filepath.Join(dir, File) }
