package records

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"jettison/api"
	"jettison/internal/base/atomicfile"
)

// File is the name of the file of records below the state directory.
const File = "records.jsonl"

// Bounds of the file. At one of them it is written anew with the newest half.
const (
	maxBytes   = 4 << 20
	maxRecords = 1000
	maxLine    = 128 << 10 // of one record; bound makes it less
)

// journal is the file of records, for the Writer's goroutine. Each record is one line and one
// write; a process that dies in the middle leaves half a line, which the next one ends.
type journal struct {
	path    string
	bytes   int64 // bounds
	records int

	file *os.File // nil: not open
	size int64
	torn bool                // the file does not end with a whole line
	ids  map[string]struct{} // of the records in it

	write func(*os.File, []byte) (int, error) // File.Write; a test's, to fail
}

func newJournal(dir string, o *Options) journal {
	return journal{path: filepath.Join(dir, File), bytes: o.Bytes, records: o.Records,
		write: (*os.File).Write}
}

// append writes the line of one record; without an ID it is a mark.
func (j *journal) append(id string, line []byte) error {
	if err := j.open(); err != nil {
		return fmt.Errorf("records: %w", err)
	}
	_, again := j.ids[id]
	if j.size+int64(len(line)) > j.bytes || !again && id != "" && len(j.ids) >= j.records {
		if err := j.halve(); err != nil {
			return fmt.Errorf("records: making room in %s: %w", j.path, err)
		}
	}
	if j.torn {
		line = append([]byte("\n"), line...)
	}
	n, err := j.write(j.file, line)
	if err != nil {
		if n > 0 && j.file.Truncate(j.size) != nil {
			j.size += int64(n)
			j.torn = true
		}
		return fmt.Errorf("records: %w", err)
	}
	j.torn, j.size = false, j.size+int64(len(line))
	if id != "" {
		j.ids[id] = struct{}{}
	}
	if err := j.file.Sync(); err != nil { // the node may not last long
		return fmt.Errorf("records: %w", err)
	}
	return nil
}

// encode makes the line of a record.
func encode(r *api.Record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("records: encoding %s: %w", r.ID, err)
	}
	return b.Bytes(), nil
}

// open opens the file and finds out what is in it. A file that was moved or removed since is not
// written to any more.
func (j *journal) open() error {
	if j.file != nil {
		there, err1 := os.Lstat(j.path)
		own, err2 := j.file.Stat()
		if err1 == nil && err2 == nil && os.SameFile(there, own) {
			return nil
		}
		j.close()
	}
	if err := os.MkdirAll(filepath.Dir(j.path), 0o700); err != nil {
		return err
	}
	f, err := atomicfile.Open(j.path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	j.file, j.ids, j.torn, j.size = f, map[string]struct{}{}, false, 0
	_ = f.Chmod(0o600) // a file system without modes keeps its own
	info, err := f.Stat()
	if err == nil {
		j.size = info.Size()
		err = j.index()
	}
	if err != nil {
		j.close()
	}
	return err
}

// index reads the IDs of what is there. What is before the last maxBytes is on its way out.
func (j *journal) index() error {
	from := max(0, j.size-j.bytes)
	return lines(io.NewSectionReader(j.file, from, j.size-from), func(l line) {
		j.torn = l.torn
		if id, mark := idOf(l.text); id != "" && mark == "" && len(j.ids) < j.records {
			j.ids[id] = struct{}{}
		}
	})
}

// idOf is the ID of a record's line; empty: it is none. mark: it is that of records that are lost,
// and why they are.
func idOf(text []byte) (id, mark string) {
	var r struct {
		ID      string      `json:"id"`
		Outcome api.Outcome `json:"outcome"`
		Error   string      `json:"error"`
	}
	if json.Unmarshal(text, &r) != nil || !ValidID(r.ID) {
		return "", ""
	}
	if r.Outcome == api.OutcomeLost {
		mark = cmp.Or(oneLine(r.Error, maxError), lostReason)
	}
	return r.ID, mark
}

// markOf makes the line that stands for records which are lost.
func markOf(l lost) []byte {
	// cannot fail
	text, _ := encode(&api.Record{Version: Version, ID: l.id, Outcome: api.OutcomeLost,
		Error: l.reason})
	return text
}

// place is where a line lies in the file.
type place struct {
	at   int64
	size int
}

// newest finds the newest half: the last lines that take half of the bound, each record once, half
// as many as may be. It returns their IDs in order, where they lie, and what is lost without the
// rest.
func (j *journal) newest() (order []string, last map[string]place, gone lost, err error) {
	in, err := search(j.file, j.size, j.bytes, j.records)
	order, last, gone = in.order, in.last, in.lost
	keep, size := len(order), int64(0)
	for keep > 0 && len(order)-keep < j.records/2 && size+int64(last[order[keep-1]].size)+
		1 <= j.bytes/2 {
		keep--
		size += int64(last[order[keep]].size) + 1
	}
	for _, id := range order[:keep] {
		gone.add(id, rotatedReason)
	}
	return order[keep:], last, gone, err
}

// halve writes the newest half of the file anew, after a line for what is lost. What was there
// stays until that lies on the disk whole.
func (j *journal) halve() error {
	order, last, gone, err := j.newest()
	if err != nil {
		return err
	}
	err = atomicfile.Replace(j.path, func(w *os.File) error {
		if gone.id != "" {
			if _, err := w.Write(markOf(gone)); err != nil {
				return err
			}
		}
		for _, id := range order {
			p := last[id]
			if _, err := io.Copy(w, io.NewSectionReader(j.file, p.at, int64(p.size))); err != nil {
				return err
			}
			if _, err := w.Write([]byte("\n")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	j.close()
	return j.open()
}

func (j *journal) close() {
	if j.file != nil {
		_ = j.file.Close()
		j.file = nil
	}
}
