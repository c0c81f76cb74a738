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

// Limits of the file. At a limit the file is rewritten with the newest half.
const (
	maxBytes   = 4 << 20
	maxRecords = 1000
	maxLine    = 128 << 10 // bytes of one record; bound keeps it smaller
)

// journal is the file of records; the Writer's goroutine owns it. Each record is one line and one
// write. A process that dies in the middle leaves a partial line, which the next write terminates.
type journal struct {
	path    string
	bytes   int64 // limits
	records int

	file *os.File // nil: not open
	size int64
	torn bool                // the file ends with a partial line
	ids  map[string]struct{} // IDs of the records in the file

	write func(*os.File, []byte) (int, error) // File.Write; replaced in tests
}

func newJournal(dir string, o *Options) journal {
	return journal{path: filepath.Join(dir, File), bytes: o.Bytes, records: o.Records,
		write: (*os.File).Write}
}

// append writes the line of one record, or, without an ID, a gap mark.
func (j *journal) append(id string, line []byte) error {
	if err := j.open(); err != nil {
		return fmt.Errorf("records: %w", err)
	}
	_, again := j.ids[id]
	if j.size+int64(len(line)) > j.bytes || !again && id != "" && len(j.ids) >= j.records {
		if err := j.halve(); err != nil {
			return fmt.Errorf("records: shrink %s: %w", j.path, err)
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
	if err := j.file.Sync(); err != nil { // the node may crash soon
		return fmt.Errorf("records: %w", err)
	}
	return nil
}

// encode returns the line of a record.
func encode(r *api.Record) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("records: encode record %s: %w", r.ID, err)
	}
	return b.Bytes(), nil
}

// open opens the file and indexes it. If the file was moved or removed, open creates a new one.
func (j *journal) open() error {
	if j.file != nil {
		current, err1 := os.Lstat(j.path)
		own, err2 := j.file.Stat()
		if err1 == nil && err2 == nil && os.SameFile(current, own) {
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
	_ = f.Chmod(0o600) // fails on a file system without modes
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

// index reads the IDs in the last maxBytes of the file. Older lines are dropped at the next shrink.
func (j *journal) index() error {
	from := max(0, j.size-j.bytes)
	return lines(io.NewSectionReader(j.file, from, j.size-from), func(l line) {
		j.torn = l.torn
		if id, mark := idOf(l.text); id != "" && mark == "" && len(j.ids) < j.records {
			j.ids[id] = struct{}{}
		}
	})
}

// idOf returns the ID of a record's line; empty: the line is no record. For a gap mark it also
// returns the reason why records are lost.
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

// markOf returns the line of a gap mark, which stands for lost records.
func markOf(l lostRange) []byte {
	// encode cannot fail here
	text, _ := encode(&api.Record{Version: Version, ID: l.id, Outcome: api.OutcomeLost,
		Error: l.reason})
	return text
}

// place is the position of a line in the file.
type place struct {
	at   int64
	size int
}

// newest selects the newest half: the last line of each of the newest records, up to half of both
// limits. It returns their IDs in order, their places, and the range of records lost by dropping
// the rest.
func (j *journal) newest() (order []string, last map[string]place, gone lostRange, err error) {
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

// halve rewrites the file with a gap mark for the lost records and the newest half. The old file
// stays until the new one is complete on disk.
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
