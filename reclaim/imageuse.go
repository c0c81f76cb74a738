package reclaim

import (
	"slices"
	"strings"
)

// Used holds the references of images in use.
type Used struct {
	refs  map[string]struct{} // as returned by normalizeRef and fullName
	short []string            // possible abbreviated IDs
	// images without names count as in use
	unnamed bool
}

// UsedIn returns the image references of a look's containers, in any state, and of
// Look.ImagesInUse.
func UsedIn(l *Look) Used {
	u := Used{refs: make(map[string]struct{}, len(l.Images)), unnamed: l.KeepUnnamed}
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
	name := normalizeRef(ref)
	if _, known := u.refs[name]; known || name == "" {
		return
	}
	u.refs[name] = struct{}{}
	u.refs[fullName(name)] = struct{}{}
	if len(name) >= minIDDigits && len(name) < 64 && isHex(name) {
		u.short = append(u.short, name)
	}
}

// Image reports whether an image is in use under its ID, a prefix of the ID, or any of its names.
// The kubelet compares only the ID, so it misses the use if a runtime reports another reference.
func (u Used) Image(i *Image) bool {
	id := normalizeRef(i.ID)
	if _, ok := u.refs[id]; ok || u.unnamed && len(i.Names) == 0 {
		return true
	}
	for _, short := range u.short {
		if strings.HasPrefix(id, short) {
			return true
		}
	}
	for _, name := range i.Names {
		name = normalizeRef(name)
		if _, ok := u.refs[name]; ok {
			return true
		}
		if _, ok := u.refs[fullName(name)]; ok && name != "" {
			return true
		}
	}
	return false
}

// Unidentified returns the indices of the containers that name no listed image by its ID or a digest.
// A name alone is not enough: the tag of a container's image may have moved to another image, and
// the runtime may no longer list the digest (cri-o#5479).
func Unidentified(containers []Container, images []Image) (indices []int) {
	listed := make(map[string]struct{}, 2*len(images))
	for i := range images {
		listed[normalizeRef(images[i].ID)] = struct{}{}
		for _, name := range images[i].Names {
			listed[fullName(normalizeRef(name))] = struct{}{}
		}
	}
	is := func(ref string) bool {
		name := normalizeRef(ref)
		_, ok := listed[name]
		_, full := listed[fullName(name)]
		return ok || full
	}
	for i := range containers {
		refs := containers[i].Images
		exact := slices.ContainsFunc(refs, Exact)
		if len(refs) > 0 && !slices.ContainsFunc(refs, func(ref string) bool {
			return is(ref) && (Exact(ref) || !exact)
		}) {
			indices = append(indices, i)
		}
	}
	return indices
}

// Exact reports whether a reference contains a whole ID or digest, which never moves to another image.
func Exact(ref string) bool {
	digest := normalizeRef(ref)
	return len(digest) >= 64 && isHex(digest) ||
		strings.HasPrefix(ref, "sha256:") && !strings.Contains(digest, ":")
}

// minIDDigits is the length from which a reference may be an abbreviated ID. Runtimes accept any
// unambiguous prefix.
const minIDDigits = 4

// normalizeRef returns the comparable part of a reference: the digest of "name@sha256:digest" and
// "sha256:digest" (IDs of CRI-O have no "sha256:"), else the whole reference.
func normalizeRef(ref string) string {
	if i := strings.LastIndexByte(ref, '@'); i >= 0 {
		ref = ref[i+1:]
	}
	return strings.TrimPrefix(ref, "sha256:")
}

// fullName returns a name as runtimes list it, with the default registry and tag added
// (github.com/distribution/reference ParseDockerRef): "pause" becomes
// "docker.io/library/pause:latest". Configurations, and clients that create containers without a
// kubelet, often use the short form: k3s uses "rancher/mirrored-pause:3.6" for its sandboxes. A
// digest is returned unchanged.
func fullName(name string) string {
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
