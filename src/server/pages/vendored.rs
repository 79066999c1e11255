//! The files of others that the GraphiQL page loads, pinned. `build.rs` takes them from npm by this table, and the page names them by it
//! where it has to load them from the CDN. A test holds that both are the same bytes.

pub(crate) struct Vendored {
    /// As the page asks for it. The version in the name is what lets a browser keep it for good.
    pub(crate) name: &'static str,
    /// Where it lies below `node_modules`: package, then path.
    pub(crate) package: &'static str,
    pub(crate) path: &'static str,
    pub(crate) version: &'static str,
    /// Subresource integrity: the browser refuses any other bytes from the CDN.
    pub(crate) integrity: &'static str,
}

/// In the order in which the page loads them.
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
