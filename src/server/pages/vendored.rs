//! Pinned third-party files of the GraphiQL page. `build.rs` installs them from npm; a build without npm loads them from
//! the CDN. A test checks that both have the same bytes.

pub(crate) struct Vendored {
    /// Name in the page. It holds the version, so that browsers cache the file for good.
    pub(crate) name: &'static str,
    /// Package and path below `node_modules`.
    pub(crate) package: &'static str,
    pub(crate) path: &'static str,
    pub(crate) version: &'static str,
    /// Subresource integrity: the browser refuses any other bytes from the CDN.
    pub(crate) integrity: &'static str,
}

/// Files in the order in which the page loads them.
pub(crate) const VENDORED: [Vendored; 5] = [
    Vendored {
        name: "graphiql-3.9.0.css",
        package: "graphiql",
        path: "graphiql.min.css",
        version: "3.9.0",
        integrity: "sha384-QMux00XgRtwRLSYIY3kw2rj1ovk5AuuliAchk+HSQbqdbGFnz9GYuqIlOqxhwCE2",
    },
    Vendored {
        name: "react-18.3.1.js",
        package: "react",
        path: "umd/react.production.min.js",
        version: "18.3.1",
        integrity: "sha384-DGyLxAyjq0f9SPpVevD6IgztCFlnMF6oW/XQGmfe+IsZ8TqEiDrcHkMLKI6fiB/Z",
    },
    Vendored {
        name: "react-dom-18.3.1.js",
        package: "react-dom",
        path: "umd/react-dom.production.min.js",
        version: "18.3.1",
        integrity: "sha384-gTGxhz21lVGYNMcdJOyq01Edg0jhn/c22nsx0kyqP0TxaV5WVdsSH1fSDUf5YJj1",
    },
    Vendored {
        name: "graphiql-3.9.0.js",
        package: "graphiql",
        path: "graphiql.min.js",
        version: "3.9.0",
        integrity: "sha384-8NGfVj4CVlqHajlZj+bPJT4thxPMHMJYn7DWK2CvtopLd02E7qsPHazniBYvVjOO",
    },
    Vendored {
        name: "graphql-ws-5.16.2.js",
        package: "graphql-ws",
        path: "umd/graphql-ws.min.js",
        version: "5.16.2",
        integrity: "sha384-+EVxFEOpy8LWPRQcpntm0FKN2O+BzrMNSL0G3HIgVWFmeb6xqZqjuLivrQUTXZKi",
    },
];
