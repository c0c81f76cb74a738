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

// Files in the state directory, and their limits. A node has a few hundred images and pods.
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

// store keeps the state that survives a restart in two files, each replaced as a whole. Only the
// process that holds the lock writes them.
type store struct {
	dir           string                       // empty: no state is kept
	boot          string                       // ID of this boot; empty: unknown
	lock          *os.File                     // nil: not locked
	lockedByOther bool                         // another process holds the lock
	written       map[string][sha256.Size]byte // hash of each file's text
	missing       []string                     // files that did not exist at the start
}

// imagesState is the content of images.json.
type imagesState struct {
	Version int                   `json:"version"`
	Images  map[string]imageState `json:"images"` // by ID
}

type imageState struct {
	FirstDetected time.Time  `json:"firstDetected"`
	LastUsed      *time.Time `json:"lastUsed,omitempty"` // absent: never
}

// podsState is the content of quiet-pods.json.
type podsState struct {
	Version int                 `json:"version"`
	Boot    string              `json:"boot,omitempty"` // of the kernel, boot_id
	Pods    map[string]quietPod `json:"pods"`           // by UID
}

// openStore opens a directory. boot is the ID of this boot; empty: unknown.
func openStore(dir, boot string) *store {
	s := &store{dir: dir, boot: boot, written: map[string][sha256.Size]byte{}}
	s.acquire()
	return s
}

// acquire locks the directory if no other process has locked it. It does nothing without a
// directory, or if none can be created.
func (s *store) acquire() {
	if s.dir == "" || s.lock != nil {
		return
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return // write reports the error
	}
	var err error
	if s.lock, err = atomicfile.Lock(filepath.Join(s.dir, lockFile)); s.lock == nil {
		s.lockedByOther = errors.Is(err, atomicfile.ErrLocked)
		return
	}
	s.lockedByOther = false
	for _, name := range []string{imagesFile, podsFile} {
		atomicfile.Clean(filepath.Join(s.dir, name))
	}
}

func (s *store) close() {
	if s.lock != nil {
		s.lock.Close() // which unlocks it
	}
}

// load reads both files. A missing file yields empty state, a malformed one empty state and an
// error.
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
			err = errors.Unwrap(err) // the path is added below
		} else {
			err = f.parse(text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read state file %s: %w (starting with empty state)", path, err))
			continue
		}
		s.written[f.name] = sha256.Sum256(text)
	}
	return records, pods, errs
}

// parseImages parses images.json. With an error it returns an empty map.
func parseImages(text []byte) (reclaim.Records, error) {
	out, state := reclaim.Records{}, imagesState{}
	err := json.Unmarshal(text, &state)
	switch {
	case err != nil:
		return out, err
	case state.Version != stateVersion:
		return out, fmt.Errorf("unsupported version %d, want %d", state.Version, stateVersion)
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

// parsePods parses quiet-pods.json. It returns an empty map with an error, and for a file of
// another boot: after a boot all pods are quiet and need time to start, however long the node was
// off. It also ignores a file without a boot ID, and every file if the current boot ID is unknown,
// because the age of the file is then unknown.
func parsePods(text []byte, boot string) (map[string]quietPod, error) {
	out, state := map[string]quietPod{}, podsState{}
	err := json.Unmarshal(text, &state)
	switch {
	case err != nil:
		return out, err
	case state.Version != stateVersion:
		return out, fmt.Errorf("unsupported version %d, want %d", state.Version, stateVersion)
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

// plausible returns a time in UTC, or zero (unknown) for a time before 1970 or with a year that
// JSON cannot represent.
func plausible(t time.Time) time.Time {
	if t = t.UTC(); t.Before(time.Unix(0, 0)) || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// saveImages writes the images' records.
func (s *store) saveImages(records reclaim.Records) error {
	return s.write(imagesFile,
		func(w io.Writer) error { return json.NewEncoder(w).Encode(encodeImages(records)) })
}

// encodeImages converts records to the content of the file. If there are too many it keeps the most
// recently used ones.
func encodeImages(records reclaim.Records) *imagesState {
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
		if len(id) > maxID { // parseImages would ignore it
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

// savePods writes the quiet pods except those that are named.
func (s *store) savePods(pods map[string]quietPod, named map[string]reclaim.Phase) error {
	if s.dir == "" {
		return nil
	}
	uids := selectPods(pods, named)
	return s.write(podsFile, func(w io.Writer) error { return s.encodePods(w, uids, pods) })
}

// encodePods writes a podsState one pod after another: the text of ten thousand pods takes
// megabytes, and json.Marshal would hold it several times.
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
			_ = w.WriteByte(',') // Flush returns the error
		}
		fmt.Fprintf(w, "%s:%s", key, value)
	}
	_, _ = w.WriteString("}}\n")
	return w.Flush()
}

// selectPods returns the unnamed pods that fit into a file, sorted. If there are too many it keeps
// those quiet the longest, which count as gone next.
func selectPods(pods map[string]quietPod, named map[string]reclaim.Phase) []string {
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

// write replaces a file as a whole if its text changed: a reader sees either the old or the new
// text. encode writes the text; it is called twice and must produce the same text.
func (s *store) write(name string, encode func(io.Writer) error) error {
	if s.dir == "" {
		return nil
	}
	if s.acquire(); s.lockedByOther {
		return nil // the other process writes its own state
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
