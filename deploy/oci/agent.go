package oci

// Agent is the agent's image. The Dockerfile's final stage says the same, which a test holds it to.
func Agent(binaries map[string]string) Image {
	return Image{
		Name:       "localhost/jettison:dev",
		Binaries:   binaries,
		Path:       "/jettison",
		Entrypoint: []string{"/jettison"},
		Cmd:        []string{"run"},
		Labels:     map[string]string{"org.opencontainers.image.title": "jettison"},
	}
}

// Bridge is the bridge's image, likewise.
func Bridge(binaries map[string]string) Image {
	return Image{
		Name:       "localhost/jettison-bridge:dev",
		Binaries:   binaries,
		Path:       "/jettison-bridge",
		Entrypoint: []string{"/jettison-bridge"},
		Cmd:        []string{"run"},
		Labels:     map[string]string{"org.opencontainers.image.title": "jettison-bridge"},
	}
}

// Cluster is that of what a cluster has once, likewise.
func Cluster(binaries map[string]string) Image {
	return Image{
		Name:       "localhost/jettison-cluster:dev",
		Binaries:   binaries,
		Path:       "/jettison-cluster",
		Entrypoint: []string{"/jettison-cluster"},
		Cmd:        []string{"nodes"},
		Labels:     map[string]string{"org.opencontainers.image.title": "jettison-cluster"},
	}
}

// Images are those that are shipped, by the name of the binary.
var Images = map[string]func(binaries map[string]string) Image{
	"jettison": Agent, "jettison-bridge": Bridge, "jettison-cluster": Cluster,
}
