package reclaim

import "strings"

// Used is what images are in use by.
type Used struct {
	refs  map[string]struct{} // as plain and full have them
	short []string            // what may be the beginning of an ID
}

// UsedIn are the images of a look's containers in any state, and its ImagesInUse.
func UsedIn(l *Look) Used {
	u := Used{refs: make(map[string]struct{}, len(l.Images))}
	for i := range l.Containers {
		for _, ref := range l.Containers[i].Images {
			u.add(ref)
		}
	}
	for _, ref := range l.ImagesInUse {
		u.add(ref)
	}
	return u
}

func (u *Used) add(ref string) {
	name := plain(ref)
	if _, known := u.refs[name]; known || name == "" {
		return
	}
	u.refs[name] = struct{}{}
	u.refs[full(name)] = struct{}{}
	if len(name) >= leastID && len(name) < 64 && isHex(name) {
		u.short = append(u.short, name)
	}
}

// Image says whether an image is in use under its ID, the beginning of it, or any of its names. The
// kubelet knows the ID only, so that an image is lost to it where a runtime gives another
// reference.
func (u Used) Image(i *Image) bool {
	id := plain(i.ID)
	if _, ok := u.refs[id]; ok {
		return true
	}
	for _, short := range u.short {
		if strings.HasPrefix(id, short) {
			return true
		}
	}
	for _, name := range i.Names {
		name = plain(name)
		if _, ok := u.refs[name]; ok {
			return true
		}
		if _, ok := u.refs[full(name)]; ok && name != "" {
			return true
		}
	}
	return false
}

// leastID is from how many digits on a reference may be an abbreviated ID: runtimes take any that
// is unambiguous.
const leastID = 4

// plain is a reference by which two can be compared: of "name@sha256:digest" and "sha256:digest"
// the digest (CRI-O's IDs are without the "sha256:"), else all of it.
func plain(ref string) string {
	if i := strings.LastIndexByte(ref, '@'); i >= 0 {
		ref = ref[i+1:]
	}
	return strings.TrimPrefix(ref, "sha256:")
}

// full is a name as runtimes list it, with the registry and the tag that are meant where there is
// none (github.com/distribution/reference ParseDockerRef): "pause" is
// "docker.io/library/pause:latest". What a configuration, or a client that made a container without
// a kubelet, calls an image is often the short form: k3s has "rancher/mirrored-pause:3.6" for its
// sandboxes. A digest stays as it is.
func full(name string) string {
	if name == "" || len(name) >= 64 && isHex(name) {
		return name
	}
	domain, rest, ok := strings.Cut(name, "/")
	switch {
	case !ok:
		name = "docker.io/library/" + name
	case domain == "index.docker.io" || domain == "docker.io":
		if !strings.Contains(rest, "/") {
			rest = "library/" + rest
		}
		name = "docker.io/" + rest
	case !strings.ContainsAny(domain, ".:") && domain != "localhost" &&
		strings.ToLower(domain) == domain:
		name = "docker.io/" + name
	}
	if !strings.Contains(name[strings.LastIndexByte(name, '/'):], ":") {
		name += ":latest"
	}
	return name
}

func isHex(text string) bool { return strings.Trim(text, "0123456789abcdef") == "" }
