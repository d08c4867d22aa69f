graph [
  node [
    id 0
    label "Bern"
    latitude 46.95
    longitude 7.45
    color "red"
  ]
  node [
    id 1
    label "Genf"
    latitude 46.2
    longitude 6.15
    color "red"
  ]
  node [
    id 2
    label "Chur"
    latitude 46.85
    longitude 9.53
    color "red"
  ]
  node [
    id 3
    label "Basel"
    latitude 47.56
    longitude 7.59
    color "red"
  ]
  node [
    id 4
    label "S&#227;o"
    latitude -23.55
    longitude -46.63
    color "red"
  ]
  edge [
    source 0
    target 1
    capacity 100.0
    delay 0.7
    weight 3
    fid 7
  ]
  edge [
    source 0
    target 2
    capacity 40.0
    delay 1.2
    weight 2.5
    fid 7
  ]
  edge [
    source 0
    target 3
    capacity 400.0
    delay 0.5
    weight 1
    fid 7
  ]
  edge [
    source 1
    target 4
    capacity 2.5
    delay 48.0
    weight 20
    fid 7
  ]
  edge [
    source 2
    target 3
    capacity 10.0
    delay 0.9
    weight 7
    fid 7
  ]
]
