package garbage

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/internal/base/atomicfile"
	"jettison/reclaim"
)

// Files in the state directory, and their bounds. A node has a few hundred images and pods.
const (
	imagesFile = "images.json"
	podsFile   = "quiet-pods.json"
	lockFile   = "gc.lock"

	stateVersion = 1
	maxState     = 8 << 20 // bytes of a file
	maxImages    = 10_000
	maxQuiet     = 10_000
	maxID        = 512
)

// store is what outlives a restart: two files, each replaced as a whole. One process at a time
// writes them, the one that holds the lock.
type store struct {
	dir     string                       // empty: nothing is kept
	boot    string                       // this one's ID; empty: not known
	lock    *os.File                     // nil: not held
	foreign bool                         // another process holds it
	written map[string][sha256.Size]byte // of each file's text
	missing []string                     // files that were not there when it was opened
}

// imagesState is images.json.
type imagesState struct {
	Version int                   `json:"version"`
	Images  map[string]imageState `json:"images"` // by ID
}

type imageState struct {
	FirstDetected time.Time  `json:"firstDetected"`
	LastUsed      *time.Time `json:"lastUsed,omitempty"` // absent: never
}

// podsState is quiet-pods.json.
type podsState struct {
	Version int                 `json:"version"`
	Boot    string              `json:"boot,omitempty"` // of the kernel, boot_id
	Pods    map[string]quietPod `json:"pods"`           // by UID
}

// openStore opens a directory. boot is the ID of this boot; empty: not known.
func openStore(dir, boot string) *store {
	s := &store{dir: dir, boot: boot, written: map[string][sha256.Size]byte{}}
	s.acquire()
	return s
}

// acquire takes the lock if no other process has it. Without a directory, or where none can be
// written, there is nothing to be locked.
func (s *store) acquire() {
	if s.dir == "" || s.lock != nil {
		return
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return // to be said when something is to be written
	}
	var err error
	if s.lock, err = atomicfile.Lock(filepath.Join(s.dir, lockFile)); s.lock == nil {
		s.foreign = errors.Is(err, atomicfile.ErrLocked)
		return
	}
	s.foreign = false
	for _, name := range []string{imagesFile, podsFile} {
		atomicfile.Clean(filepath.Join(s.dir, name))
	}
}

func (s *store) close() {
	if s.lock != nil {
		s.lock.Close() // which unlocks it
	}
}

// load reads both files. What is missing is empty; what is malformed is, too, and in the errors.
func (s *store) load() (records reclaim.Records, pods quiet, errs []error) {
	records, pods = reclaim.Records{}, newQuiet()
	for _, f := range []struct {
		name  string
		parse func(text []byte) error
	}{
		{imagesFile, func(text []byte) (err error) { records, err = parseImages(text); return err }},
		{podsFile, func(text []byte) (err error) {
			pods.seen, err = parsePods(text, s.boot)
			return err
		}},
	} {
		if s.dir == "" {
			break
		}
		path := filepath.Join(s.dir, f.name)
		text, err := atomicfile.Read(path, maxState, unix.O_NOFOLLOW)
		if errors.Is(err, os.ErrNotExist) {
			s.missing = append(s.missing, path)
			continue
		}
		if err != nil {
			err = errors.Unwrap(err) // the path is said below
		} else {
			err = f.parse(text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: starting anew", path, err))
			continue
		}
		s.written[f.name] = sha256.Sum256(text)
	}
	return records, pods, errs
}

// parseImages reads images.json. It returns an empty map beside an error.
func parseImages(text []byte) (reclaim.Records, error) {
	out, state := reclaim.Records{}, imagesState{}
	err := json.Unmarshal(text, &state)
	switch {
	case err != nil:
		return out, err
	case state.Version != stateVersion:
		return out, fmt.Errorf("version %d, want %d", state.Version, stateVersion)
	case len(state.Images) > maxImages:
		return out, fmt.Errorf("more than %d images", maxImages)
	}
	for id, i := range state.Images {
		if id == "" || len(id) > maxID {
			continue
		}
		r := reclaim.ImageRecord{FirstDetected: plausible(i.FirstDetected)}
		if i.LastUsed != nil {
			r.LastUsed = plausible(*i.LastUsed)
		}
		out[id] = r
	}
	return out, nil
}

// parsePods reads quiet-pods.json. It returns an empty map beside an error, and of another boot:
// all pods are quiet after that, and what starts them needs time for it, however long the node was
// off. Neither is a file to be relied on that does not say of which boot it is, nor any where that
// of now is not known: how long ago it was written nothing tells then.
func parsePods(text []byte, boot string) (map[string]quietPod, error) {
	out, state := map[string]quietPod{}, podsState{}
	err := json.Unmarshal(text, &state)
	switch {
	case err != nil:
		return out, err
	case state.Version != stateVersion:
		return out, fmt.Errorf("version %d, want %d", state.Version, stateVersion)
	case len(state.Pods) > maxQuiet:
		return out, fmt.Errorf("more than %d pods", maxQuiet)
	case boot == "" || state.Boot != boot:
		return out, nil
	}
	for uid, p := range state.Pods {
		if p.Since = plausible(p.Since); uid != "" && len(uid) <= maxID && p.SinceBoot > 0 {
			out[uid] = p
		}
	}
	return out, nil
}

// plausible is a time in UTC, and zero, not known, for one before 1970 or of a year that JSON has
// no text for.
func plausible(t time.Time) time.Time {
	if t = t.UTC(); t.Before(time.Unix(0, 0)) || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// saveImages writes the images' records.
func (s *store) saveImages(records reclaim.Records) error {
	return s.write(imagesFile,
		func(w io.Writer) error { return json.NewEncoder(w).Encode(imagesOf(records)) })
}

// imagesOf is what becomes of records in the file: of too many those that were used last, which are
// worth the most.
func imagesOf(records reclaim.Records) *imagesState {
	state := &imagesState{Version: stateVersion, Images: make(map[string]imageState,
		min(len(records), maxImages))}
	ids := slices.Collect(maps.Keys(records))
	if len(ids) > maxImages {
		slices.SortFunc(ids, func(a, b string) int {
			return records[b].LastUsed.Compare(
				records[a].LastUsed)
		})
		ids = ids[:maxImages]
	}
	for _, id := range ids {
		if len(id) > maxID { // it would not be read again
			continue
		}
		i := imageState{FirstDetected: records[id].FirstDetected.UTC()}
		if used := records[id].LastUsed.UTC(); !used.IsZero() {
			i.LastUsed = &used
		}
		state.Images[id] = i
	}
	return state
}

// savePods writes which pods are quiet since when, but for those that are named.
func (s *store) savePods(pods map[string]quietPod, named map[string]reclaim.Phase) error {
	if s.dir == "" {
		return nil
	}
	uids := longest(pods, named)
	return s.write(podsFile, func(w io.Writer) error { return s.encodePods(w, uids, pods) })
}

// encodePods writes a podsState one pod after the other: the text of ten thousand takes megabytes,
// several times while it is made.
func (s *store) encodePods(to io.Writer, uids []string, pods map[string]quietPod) error {
	boot, err := json.Marshal(s.boot)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, `{"version":%d,"boot":%s,"pods":{`, stateVersion, boot)
	for i, uid := range uids {
		key, err1 := json.Marshal(uid)
		value, err2 := json.Marshal(pods[uid])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if i > 0 {
			_ = w.WriteByte(',') // Flush says what was wrong
		}
		fmt.Fprintf(w, "%s:%s", key, value)
	}
	_, _ = w.WriteString("}}\n")
	return w.Flush()
}

// longest are the pods that a file has room for, sorted: of too many those that are quiet the
// longest, which are the next to be gone.
func longest(pods map[string]quietPod, named map[string]reclaim.Phase) []string {
	bytes, uids := 0, make([]string, 0, len(pods))
	for uid, p := range pods {
		if _, is := named[uid]; !is {
			bytes += p.bytes(uid)
			uids = append(uids, uid)
		}
	}
	if len(uids) > maxQuiet || bytes > maxState {
		slices.SortFunc(uids, func(a, b string) int {
			return cmp.Or(cmp.Compare(pods[a].SinceBoot, pods[b].SinceBoot), strings.Compare(a, b))
		})
		bytes = 0
		uids = slices.DeleteFunc(uids[:min(len(uids), maxQuiet)], func(uid string) bool {
			p := pods[uid]
			over := bytes+p.bytes(uid) > maxState
			if !over {
				bytes += p.bytes(uid)
			}
			return over
		})
	}
	slices.Sort(uids)
	return uids
}

// write replaces a file as a whole, if it has to be another one: a reader sees the old text or the
// new one, whatever happens meanwhile. encode writes its text, twice the same.
func (s *store) write(name string, encode func(io.Writer) error) error {
	if s.dir == "" {
		return nil
	}
	if s.acquire(); s.foreign {
		return nil // the other process writes what it sees
	}
	path, hash, sum := filepath.Join(s.dir, name), sha256.New(), [sha256.Size]byte{}
	if err := encode(hash); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if hash.Sum(sum[:0]); sum == s.written[name] {
		return nil
	}
	if err := atomicfile.Replace(path, func(f *os.File) error { return encode(f) }); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	s.written[name] = sum
	return nil
}
