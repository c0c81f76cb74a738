package oci

// Agent returns the agent's image. A test compares it with the Dockerfile's final stage.
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

// Bridge returns the bridge's image, tested in the same way.
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

// Cluster returns the image of jettison-cluster, tested in the same way.
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

// Images are the shipped images, by the name of the binary.
var Images = map[string]func(binaries map[string]string) Image{
	"jettison": Agent, "jettison-bridge": Bridge, "jettison-cluster": Cluster,
}
