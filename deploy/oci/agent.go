package oci

// Agent returns the agent's image. A test compares it with the Dockerfile's final stage.
func Agent(binaries map[string]string) Image {
	return Image{
		Name:         "localhost/jettison:dev",
		Binaries:     binaries,
		Path:         "/jettison",
		DocumentPath: "/usr/share/doc/jettison",
		Entrypoint:   []string{"/jettison"},
		Cmd:          []string{"run"},
		Labels:       labels("jettison"),
	}
}

// Bridge returns the bridge's image, tested in the same way.
func Bridge(binaries map[string]string) Image {
	return Image{
		Name:         "localhost/jettison-bridge:dev",
		Binaries:     binaries,
		Path:         "/jettison-bridge",
		DocumentPath: "/usr/share/doc/jettison-bridge",
		Entrypoint:   []string{"/jettison-bridge"},
		Cmd:          []string{"run"},
		Labels:       labels("jettison-bridge"),
	}
}

// Cluster returns the image of jettison-cluster, tested in the same way.
func Cluster(binaries map[string]string) Image {
	return Image{
		Name:         "localhost/jettison-cluster:dev",
		Binaries:     binaries,
		Path:         "/jettison-cluster",
		DocumentPath: "/usr/share/doc/jettison-cluster",
		Entrypoint:   []string{"/jettison-cluster"},
		Cmd:          []string{"nodes"},
		Labels:       labels("jettison-cluster"),
	}
}

// labels returns the labels of an image.
func labels(title string) map[string]string {
	return map[string]string{"org.opencontainers.image.title": title,
		"org.opencontainers.image.licenses": "Apache-2.0"}
}

// Images are the shipped images, by the name of the binary.
var Images = map[string]func(binaries map[string]string) Image{
	"jettison": Agent, "jettison-bridge": Bridge, "jettison-cluster": Cluster,
}
